-- +goose Up

-- One row per lease. Rows are never deleted by the library: the token must go on
-- growing when a lease is released and taken again. For the same reason there is
-- no down migration.
--
-- Durations are in microseconds, instants in microseconds since 1970-01-01 UTC.
CREATE TABLE IF NOT EXISTS joblease_leases (
    name           TEXT    NOT NULL PRIMARY KEY
                   CHECK (length(CAST(name AS BLOB)) BETWEEN 1 AND 255),
    holder         TEXT    NOT NULL, -- a label for people; empty when released
    claim          BLOB,             -- identity of the acquisition; null when released
    token          INTEGER NOT NULL CHECK (token > 0),
    version        INTEGER NOT NULL, -- one more at each write
    ttl_us         INTEGER NOT NULL,
    acquired_at_us INTEGER NOT NULL,
    renewed_at_us  INTEGER NOT NULL,
    expires_at_us  INTEGER NOT NULL,
    tick_us        INTEGER,          -- the last tick claimed
    tick_done      INTEGER NOT NULL DEFAULT 1
) STRICT, WITHOUT ROWID;
