-- Locks the row against a change of hands until the caller's transaction ends.
--
-- $1 name, $2 claim.
--
-- Atomic because the claim is compared on the row under its lock. KEY SHARE is
-- the weakest lock that a takeover's FOR UPDATE conflicts with, and the only one
-- that lets the holder's renewals pass.
SELECT FROM joblease_leases AS l
WHERE l.name = $1 AND l.claim = $2::uuid
FOR KEY SHARE
