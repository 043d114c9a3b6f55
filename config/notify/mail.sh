#!/bin/sh
# Mails each change of health. It is run by wfctl with the event (wfctl/event.v1) as JSON on its standard input.
#
#   [notify]
#   command = ["/usr/local/lib/wfctl/mail.sh", "ops@example.org"]
#
# It needs python3 and a sendmail (of any mail system). SENDMAIL names another program than /usr/sbin/sendmail.
set -eu

to=${1:?write the address behind the program in the notify command}

MAIL_TO=$to python3 -c '
import email.message, json, os, sys
event = json.load(sys.stdin)
mail = email.message.EmailMessage()
mail["To"] = os.environ["MAIL_TO"]
mail["Subject"] = "[{host}] {schedule_id} {event}".format(**event)
mail["Auto-Submitted"] = "auto-generated"
text = event["message"] + "\n"
if event["stderr_tail"]:
    text += "\nThe end of its stderr:\n\n" + event["stderr_tail"]
if event["next_instant"]:
    text += "\nIt is due again at " + event["next_instant"] + ".\n"
mail.set_content(text)
sys.stdout.buffer.write(mail.as_bytes())
' | "${SENDMAIL:-/usr/sbin/sendmail}" -t -i
