-- Read new messages for a consumer, from one stream after the other until there are enough. A group that is lost is
-- made again and begins at the first message there is.
--
-- KEYS  1 the set of queues
-- ARGV  1 what stands before a queue's name   2 the group   3 the consumer   4 how many   5 a seed
--       then the queues in their order; none means all of them, in an order drawn by lot
-- Answers queue, id and fields of each message. What cannot be read is passed over, whatever the reason: an error would
-- leave what was read from other streams pending for a consumer that never receives it. The error of a
-- replica is returned: a new connection may lead to the primary.
local names = {}
for at = 6, #ARGV do
  names[#names + 1] = ARGV[at]
end
if #names == 0 then
  names = redis.call('SMEMBERS', KEYS[1])
  math.randomseed(tonumber(ARGV[5]))
  for at = #names, 2, -1 do
    local other = math.random(at)
    names[at], names[other] = names[other], names[at]
  end
end
local left = tonumber(ARGV[4])
local found = {}
for _, name in ipairs(names) do
  local key = ARGV[1] .. name
  if left > 0 and redis.call('EXISTS', key) == 1 then
    local function read()
      return redis.pcall('XREADGROUP', 'GROUP', ARGV[2], ARGV[3], 'COUNT', left, 'STREAMS', key, '>')
    end
    local answer = read()
    if answer and answer.err and string.find(answer.err, 'NOGROUP', 1, true) then
      -- Where Redis is full there can be no group: then nothing is read, and the database is asked.
      redis.pcall('XGROUP', 'CREATE', key, ARGV[2], '0')
      answer = read()
    end
    local refused = answer and answer.err or ''
    if string.find(refused, 'READONLY', 1, true) or string.find(refused, 'MASTERDOWN', 1, true) then
      return answer
    end
    if answer and not answer.err then
      for _, entry in ipairs(answer[1][2]) do
        found[#found + 1] = {name, entry[1], entry[2]}
        left = left - 1
      end
    end
  end
end
return found
