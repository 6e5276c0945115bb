-- +goose Up

-- One row per lease. Rows are never deleted by the library: the token must go on
-- growing when a lease is released and taken again. For the same reason there is
-- no down migration.
--
-- There is no index but the primary key, and the pages are kept half empty, so
-- that a renewal is a heap-only update that touches no index and leaves nothing
-- for VACUUM but a few dead tuples on the same page. The table must be logged: an
-- unlogged one is empty after a crash, and two replicas could hold one lease.
CREATE TABLE IF NOT EXISTS joblease_leases (
    name        text COLLATE "C" NOT NULL PRIMARY KEY
                CHECK (octet_length(name) BETWEEN 1 AND 255),
    holder      text        NOT NULL, -- a label for people; empty when released
    claim       uuid,                 -- identity of the acquisition; null when released
    token       bigint      NOT NULL CHECK (token > 0),
    version     bigint      NOT NULL, -- one more at each write
    ttl         interval    NOT NULL,
    acquired_at timestamptz NOT NULL,
    renewed_at  timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL,
    tick        timestamptz,          -- the last tick claimed
    tick_done   boolean     NOT NULL DEFAULT true
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
