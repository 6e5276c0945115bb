-- Marks the run of the tick as finished, as part of the caller's transaction,
-- which is the file's only writer from here until it ends. Matches the row if
-- the claim still holds the lease, with that tick. Like a fence it leaves the
-- version alone.
UPDATE joblease_leases SET tick_done = 1 WHERE name = :name AND claim = :claim AND tick_us = :tick
