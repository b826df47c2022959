-- Move messages that lead nowhere to the stream of dead letters, with the reason.
--
-- KEYS  1 the stream   2 the dead letters
-- ARGV  1 the group   2 how many dead letters are kept   3 the queue   then id, reason and text of each
for at = 4, #ARGV, 3 do
  redis.pcall('XADD', KEYS[2], 'MAXLEN', '~', ARGV[2], '*', 'stream', ARGV[3], 'message_id', ARGV[at],
    'reason', ARGV[at + 1], 'message', ARGV[at + 2])
  redis.call('XACK', KEYS[1], ARGV[1], ARGV[at])
  redis.call('XDEL', KEYS[1], ARGV[at])
end
