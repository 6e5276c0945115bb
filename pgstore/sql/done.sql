-- Marks the run of the tick as finished, as part of the caller's transaction.
--
-- $1 name, $2 claim, $3 tick.
--
-- Atomic because it is one update of one row, found by the claim. It is a fence
-- as well: until the transaction ends the row's lock keeps everybody from taking
-- the lease over, and when it has ended in a commit the tick is done, which
-- refuses it to everybody.
--
-- The version stays: this is no sign of life, and a standby that saw it move
-- would begin its wait anew.
UPDATE joblease_leases AS l
SET tick_done = true
WHERE l.name = $1 AND l.claim = $2::uuid AND l.tick = $3::timestamptz
