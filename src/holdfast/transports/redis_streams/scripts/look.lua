-- What is in a stream, and in whose hands. A group that is lost is made again.
--
-- KEYS  1 the stream
-- ARGV  1 the group   2 how many at most
-- Answers the entries, the pending list (id, consumer, milliseconds, deliveries) and the id that was delivered last.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return {{}, {}, '0-0'}
end
local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], '-', '+', ARGV[2])
if pending.err then
  redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0')
  pending = {}
end
local last = '0-0'
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local facts = {}
  for at = 1, #group, 2 do
    facts[group[at]] = group[at + 1]
  end
  if facts['name'] == ARGV[1] then
    last = facts['last-delivered-id']
  end
end
return {redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', ARGV[2]), pending, last}
