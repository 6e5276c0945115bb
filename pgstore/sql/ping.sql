-- Sends a message to this store's own listening connection.
--
-- $1 channel, $2 message.
SELECT pg_notify($1, $2)
