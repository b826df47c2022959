-- Remove consumers that hold nothing and have not been heard of for long; and the stream, once it is empty and nobody
-- reads it.
--
-- KEYS  1 the stream   2 the set of queues
-- ARGV  1 the group   2 how long, in milliseconds   3 the queue
local consumers = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if consumers.err then
  return 0
end
local left = #consumers
local removed = 0
for _, consumer in ipairs(consumers) do
  local facts = {}
  for at = 1, #consumer, 2 do
    facts[consumer[at]] = consumer[at + 1]
  end
  if facts['pending'] == 0 and facts['idle'] >= tonumber(ARGV[2]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], facts['name'])
    left = left - 1
    removed = removed + 1
  end
end
if left == 0 and redis.call('XLEN', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[1])
  redis.call('SREM', KEYS[2], ARGV[3])
end
return removed
