-- Goes in front of every statement, in the same round trip and the same implicit
-- transaction, so that no setting outlives it and a pooler in transaction mode
-- is no hindrance.
--
-- $1: milliseconds after which the server itself gives up, so that no statement
-- of a caller who has left waits for a lock. It replaces what is set for the
-- role or the server: the caller's deadline is the one that counts.
--
-- A commit that is not flushed can be forgotten in a crash, and with it a grant
-- that its holder still trusts.
SELECT set_config('statement_timeout', $1, true),
       set_config('lock_timeout', $1, true),
       set_config('synchronous_commit',
                  CASE current_setting('synchronous_commit')
                      WHEN 'off' THEN 'on'
                      ELSE current_setting('synchronous_commit')
                  END, true)
