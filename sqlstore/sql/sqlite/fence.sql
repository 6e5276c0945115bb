-- Matches the row if the claim still holds the lease, and makes the transaction
-- that it runs in the file's only writer until it ends. An UPDATE takes the
-- write lock also when it changes nothing and when it matches nothing; a SELECT
-- would leave the lock to whoever comes first.
--
-- It assigns the version to itself: a fence is not a sign of life, and a standby
-- that sees the version move would begin its wait anew.
UPDATE joblease_leases SET version = version WHERE name = :name AND claim = :claim
