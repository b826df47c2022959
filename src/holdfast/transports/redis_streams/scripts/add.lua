-- Add messages while the stream is shorter than the window. Answers how many were added.
--
-- KEYS  1 the stream   2 the set of queues
-- ARGV  1 the window   2 the queue   3 the channel to announce it on   4 'new': only jobs that no message names yet
--       then job_id and enqueue_id of each
local room = tonumber(ARGV[1]) - redis.call('XLEN', KEYS[1])
if room <= 0 then
  return 0
end
local named = {}
if ARGV[4] == 'new' then
  for _, entry in ipairs(redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', ARGV[1])) do
    for at = 1, #entry[2], 2 do
      if entry[2][at] == 'job_id' then
        named[entry[2][at + 1]] = true
      end
    end
  end
end
local added = 0
for at = 5, #ARGV, 2 do
  if added < room and not named[ARGV[at]] then
    redis.call('XADD', KEYS[1], '*', 'job_id', ARGV[at], 'enqueue_id', ARGV[at + 1])
    added = added + 1
  end
end
if added > 0 then
  redis.call('SADD', KEYS[2], ARGV[2])
  redis.call('PUBLISH', ARGV[3], '')
end
return added
