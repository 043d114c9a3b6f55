"""The tables of the ledger and their version. The small numbers that stand for words in them are in `numbers`.

Rows are kept narrow: a store lives for years. Words that repeat are small integers, instants are integer microseconds, and what
most rows lack is NULL, which costs a byte. Occurrences are clustered by schedule and recording order, which is how they are
paged; (schedule, instant) is unique beside it, and a run is unique by its occurrence (contract 6.1).
"""

from __future__ import annotations

FORMAT = 4  #: kept in `PRAGMA user_version`; an unknown newer one is refused untouched (2.5)
APPLICATION_ID = 0x77666374  # "wfct"

DEPLOYMENT, SCHEDULE = 0, 1
KIND_NUMBER = {"deployment": DEPLOYMENT, "schedule": SCHEDULE}

WAITS_FOR_OVERLAP, WAITS_FOR_CAPACITY = 1, 2

_HEALTH = """
CREATE TABLE health (            -- schedules of which something is wrong; no row: nothing is known to be
  schedule INTEGER PRIMARY KEY,  -- the number of its definition
  state TEXT NOT NULL,           -- JSON
  is_missed INTEGER NOT NULL, is_blocked INTEGER NOT NULL
);
CREATE INDEX health_missed ON health (schedule) WHERE is_missed = 1;
CREATE INDEX health_blocked ON health (schedule) WHERE is_blocked = 1;

CREATE TABLE notices (           -- what is to be told, until it was
  number INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again: the keeper launches each (number, try) once
  schedule INTEGER NOT NULL,
  word TEXT NOT NULL,
  event TEXT NOT NULL,           -- JSON
  coalesced INTEGER NOT NULL,    -- how many older ones of the same word it stands for
  tries INTEGER NOT NULL,        -- how often its command was launched
  is_launched INTEGER NOT NULL,  -- whether the last launch is not settled yet
  error TEXT                     -- what the last one failed by
);
CREATE INDEX notices_by_schedule ON notices (schedule, word);
"""

_ORIGINS = """
CREATE TABLE origins (           -- what marks share: boot and keeper. In each row it would leave a gap for good once settled
  number INTEGER PRIMARY KEY,
  note TEXT NOT NULL UNIQUE      -- JSON
);
"""

_FORESEEN = """
CREATE TABLE foreseen (          -- what croniter and the tz database said of the years ahead, when a revision was saved
  definition INTEGER NOT NULL,   -- (in its own row, most revisions would no more fit where their page is)
  revision INTEGER NOT NULL,
  calendar TEXT NOT NULL,        -- JSON
  PRIMARY KEY (definition, revision)
) WITHOUT ROWID;
"""

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- One row: numbers that only grow, so that no id, place or clock reading is ever used again.
CREATE TABLE counters (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  occurrence INTEGER NOT NULL,   -- the last place given in the order of recording
  run INTEGER NOT NULL,          -- the last run number given
  clock INTEGER NOT NULL         -- the latest wall clock that anything was consumed at
);
INSERT INTO counters VALUES (1, 0, 0, 0);

CREATE TABLE definitions (
  number INTEGER PRIMARY KEY,
  kind INTEGER NOT NULL,
  id TEXT NOT NULL,
  revision INTEGER NOT NULL,     -- 0: a file that never was valid
  digest TEXT,                   -- of the content of that revision, which is the one wanted on disk
  prior_digest TEXT,             -- of what the file held before, while `written` is 0
  written INTEGER NOT NULL,      -- whether the file is known to hold the wanted content
  mtime_ns INTEGER, ctime_ns INTEGER, size INTEGER, inode INTEGER,  -- of the file when it was last found to hold it
  diagnostic TEXT,               -- JSON; set: the definition cannot be trusted and blocks
  created_at INTEGER NOT NULL,
  deleted_at INTEGER,
  UNIQUE (kind, id)
);
CREATE INDEX definitions_blocked ON definitions (kind, id) WHERE diagnostic IS NOT NULL;

CREATE TABLE revisions (
  definition INTEGER NOT NULL REFERENCES definitions (number),
  revision INTEGER NOT NULL,
  recorded_at INTEGER NOT NULL,
  actor TEXT NOT NULL,
  croniter TEXT NOT NULL,
  tz_database TEXT NOT NULL,
  digest TEXT NOT NULL,
  content TEXT NOT NULL,         -- the TOML
  plain TEXT NOT NULL,           -- the same, parsed, as JSON
  max_run INTEGER,               -- resolved limit of an attempt, microseconds
  begins INTEGER,                -- where the calendar of a changed trigger begins; NULL: the trigger is the one before
  PRIMARY KEY (definition, revision)
) WITHOUT ROWID;

CREATE TABLE schedules (
  number INTEGER PRIMARY KEY REFERENCES definitions (number),
  deployment INTEGER NOT NULL REFERENCES definitions (number),
  effective_from INTEGER NOT NULL,
  anchor INTEGER NOT NULL,
  watermark INTEGER NOT NULL,
  next_instant INTEGER,          -- the first one after the floor; NULL: none
  wake_at INTEGER,               -- when it needs attention; NULL: never, as it is
  candidate INTEGER, held_since INTEGER, can_expire INTEGER, waits_for INTEGER, held_reason TEXT,
  last_admission INTEGER,
  paused_at INTEGER,
  passing_until INTEGER,         -- up to here admitted instants may come due again, after a step back of the clock
  is_disordered INTEGER NOT NULL DEFAULT 0,  -- a row was recorded out of the order of instants
  horizon INTEGER                -- older instants are no more kept; NULL: all are
);
CREATE INDEX schedules_by_wake ON schedules (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX schedules_by_capacity ON schedules (held_since, last_admission) WHERE waits_for = 2;
CREATE INDEX schedules_by_deployment ON schedules (deployment);
CREATE INDEX schedules_by_candidate ON schedules (number) WHERE candidate IS NOT NULL;

CREATE TABLE occurrences (
  schedule INTEGER NOT NULL,
  place INTEGER NOT NULL,        -- in the order of recording, over all schedules
  instant INTEGER NOT NULL,
  status INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  recorded_at INTEGER NOT NULL,
  lateness INTEGER,
  run INTEGER,
  reason TEXT,
  span_first INTEGER, span_count INTEGER,
  PRIMARY KEY (schedule, place)
) WITHOUT ROWID;
CREATE UNIQUE INDEX occurrences_by_instant ON occurrences (schedule, instant);
CREATE UNIQUE INDEX occurrences_by_place ON occurrences (place);
CREATE INDEX occurrences_spans ON occurrences (schedule, instant) WHERE span_first IS NOT NULL;
-- `+status`: what proves that the index has the row is not to be taken for the range to look in.
CREATE INDEX occurrences_rare ON occurrences (status, place) WHERE +status >= 10;
CREATE INDEX occurrences_rare_of_schedule ON occurrences (schedule, status, place) WHERE +status >= 10;

CREATE TABLE runs (
  number INTEGER PRIMARY KEY,
  schedule INTEGER,              -- NULL: a manual run
  instant INTEGER,
  revision INTEGER,
  deployment INTEGER NOT NULL,
  deployment_revision INTEGER NOT NULL,
  status INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  resumed_step INTEGER NOT NULL DEFAULT 0,
  admitted_at INTEGER NOT NULL,
  started_at INTEGER,            -- of its first process
  attempt_at INTEGER,            -- of the first process of this attempt; NULL in the first one: as `started_at`
  ended_at INTEGER,
  max_run INTEGER,
  max_steps INTEGER,
  is_overdue INTEGER,
  input TEXT,                    -- NULL: the schedule revision's
  reason TEXT, output TEXT, output_k INTEGER, interrupt TEXT, stop TEXT, resume TEXT
);
-- By the instant first: whatever comes due together is written side by side, not all over the index.
CREATE UNIQUE INDEX runs_by_occurrence ON runs (instant, schedule) WHERE schedule IS NOT NULL;
CREATE INDEX runs_by_schedule ON runs (schedule, number) WHERE schedule IS NOT NULL;
CREATE INDEX runs_unfinished ON runs (schedule, number) WHERE status BETWEEN 11 AND 13;
CREATE INDEX runs_rare ON runs (status, number) WHERE status >= 10;
CREATE INDEX runs_by_deployment ON runs (deployment, number);
CREATE INDEX runs_manual ON runs (deployment, number) WHERE schedule IS NULL;

CREATE TABLE executions (
  run INTEGER NOT NULL,
  k INTEGER NOT NULL,
  step INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  how INTEGER,                   -- NULL: not settled
  started_at INTEGER, ended_at INTEGER,
  exit_status INTEGER, signal INTEGER,
  cpu INTEGER, max_rss INTEGER, left_behind INTEGER,
  detail TEXT,                   -- JSON: a refusal's errno, what a process that cannot be told from another needs
  stop TEXT,                     -- a recorded stop of this execution alone
  mark TEXT, origin INTEGER,     -- while unsettled: what makes it known again, and the number of what many share of that
  PRIMARY KEY (run, k)
) WITHOUT ROWID;
CREATE INDEX executions_unsettled ON executions (run, k) WHERE how IS NULL;

CREATE TABLE pauses (
  schedule INTEGER NOT NULL,
  paused_at INTEGER NOT NULL,
  resumed_at INTEGER,
  reason TEXT, actor TEXT NOT NULL, resumed_by TEXT,
  PRIMARY KEY (schedule, paused_at)
) WITHOUT ROWID;

CREATE TABLE clock_events (
  schedule INTEGER NOT NULL,
  number INTEGER NOT NULL,       -- from 1, by schedule
  recorded_at INTEGER NOT NULL,
  floor INTEGER NOT NULL,        -- where the schedule stood
  withdrawn TEXT NOT NULL,       -- JSON: what it took back
  revision INTEGER,              -- the one that was current
  PRIMARY KEY (schedule, number)
) WITHOUT ROWID;

CREATE TABLE sessions (          -- when a supervisor was there
  number INTEGER PRIMARY KEY,
  pid INTEGER NOT NULL, host TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  seen_at INTEGER NOT NULL,
  ended_at INTEGER
);
"""
TABLES += _HEALTH + _ORIGINS + _FORESEEN

#: From format n to n + 1, each run in one transaction after a backup copy.
MIGRATIONS: dict[int, str] = {
    1: """
ALTER TABLE revisions ADD COLUMN begins INTEGER;
ALTER TABLE clock_events ADD COLUMN revision INTEGER;
ALTER TABLE schedules ADD COLUMN horizon INTEGER;
CREATE INDEX runs_manual ON runs (deployment, number) WHERE schedule IS NULL;
CREATE INDEX definitions_blocked ON definitions (kind, id) WHERE diagnostic IS NOT NULL;
-- What was held until a change dropped it says since when; of these rows nobody knows any more.
UPDATE occurrences SET reason = replace(reason, '}', ',"held_since":null}')
  WHERE status = 4 AND reason IN ('{"code":"edited"}', '{"code":"paused"}', '{"code":"deleted"}');
""",
    2: f"""
ALTER TABLE revisions ADD COLUMN calendar TEXT;
{_HEALTH}""",
    3: f"""
{_ORIGINS}
CREATE TABLE packed (
  run INTEGER NOT NULL, k INTEGER NOT NULL, step INTEGER NOT NULL, attempt INTEGER NOT NULL, how INTEGER,
  started_at INTEGER, ended_at INTEGER, exit_status INTEGER, signal INTEGER, cpu INTEGER, max_rss INTEGER,
  left_behind INTEGER, detail TEXT, stop TEXT, mark TEXT, origin INTEGER, PRIMARY KEY (run, k)
) WITHOUT ROWID;
INSERT INTO packed SELECT run, k, step, attempt, how, started_at, ended_at, exit_status, signal, cpu, max_rss, left_behind,
  detail, stop, mark, NULL FROM executions ORDER BY run, k;
DROP TABLE executions;
ALTER TABLE packed RENAME TO executions;
CREATE INDEX executions_unsettled ON executions (run, k) WHERE how IS NULL;
{_FORESEEN}
INSERT INTO foreseen SELECT definition, revision, calendar FROM revisions WHERE typeof(calendar) = 'text'
  ORDER BY definition, revision;
CREATE TABLE shorter (
  definition INTEGER NOT NULL REFERENCES definitions (number), revision INTEGER NOT NULL, recorded_at INTEGER NOT NULL,
  actor TEXT NOT NULL, croniter TEXT NOT NULL, tz_database TEXT NOT NULL, digest TEXT NOT NULL, content TEXT NOT NULL,
  plain TEXT NOT NULL, max_run INTEGER, begins INTEGER, PRIMARY KEY (definition, revision)
) WITHOUT ROWID;
INSERT INTO shorter SELECT definition, revision, recorded_at, actor, croniter, tz_database, digest, content, plain, max_run,
  begins FROM revisions ORDER BY definition, revision;
DROP TABLE revisions;
ALTER TABLE shorter RENAME TO revisions;
DROP INDEX runs_by_occurrence;
CREATE UNIQUE INDEX runs_by_occurrence ON runs (instant, schedule) WHERE schedule IS NOT NULL;
""",
}
