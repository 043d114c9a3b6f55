#!/bin/sh
# A dead-man ping: a monitor elsewhere that raises the alarm when nothing has been heard, so that it also tells you when
# this machine, or the supervisor, is gone: which nothing on this machine can.
#
# Two places call it, since a change of health is told once and a monitor wants to hear of each success:
#
#   1. as the last step of the deployment, so that a success, and only that, is heard of:
#
#        [[steps]]
#        name = "ping"
#        command = ["/usr/local/lib/wfctl/ping.sh", "/etc/wfctl/backup.ping"]
#
#   2. as the notify command of its schedule, so that a failure is heard of at once, not when the next success is overdue:
#
#        notify = { command = ["/usr/local/lib/wfctl/ping.sh", "/etc/wfctl/backup.ping"] }
#
# The file holds the address of the check and nothing else (mode 0600), as https://hc-ping.com/UUID of healthchecks.io, whose
# /fail is asked for on trouble. It needs curl. CURL names another program than curl.
set -eu

file=${1:?write the file that holds the address behind the program}
url=$(cat "$file")

# WFCTL_EVENT is set where wfctl tells of a change of health, and absent in a step of a run.
case ${WFCTL_EVENT:-} in
    '') cause= ;;                        # a step at the end of a run that worked
    recovered) exit 0 ;;                 # its own last step has said so
    waiting | overdue | unblocked) exit 0 ;;  # nothing is lost yet
    *) cause=/fail ;;                    # failed, failing, missed, blocked
esac

# What is told, up to 10 kB, is kept with the ping; a step of a run has nothing on its standard input.
head -c 10000 | "${CURL:-curl}" --silent --show-error --fail --max-time 10 --retry 2 --output /dev/null \
    --data-binary @- --config /dev/fd/3 3<<END
url = "$url$cause"
END
