-- Put messages at the end of their stream, for somebody else to read.
--
-- KEYS  1 the stream
-- ARGV  1 the group   2 how long a message must have been in somebody's hands, in milliseconds; one that somebody has
--         taken meanwhile is left alone   3 the channel to announce it on, or ''   then the id of each
local back = 0
for at = 4, #ARGV do
  local held = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[at], ARGV[at], 1)
  local fresh = not held.err and #held > 0 and held[1][3] < tonumber(ARGV[2])
  local entries = redis.call('XRANGE', KEYS[1], ARGV[at], ARGV[at])
  if not fresh and #entries > 0 then
    local copy = {}
    for place = 1, math.min(#entries[1][2], 20) do
      copy[place] = entries[1][2][place]
    end
    redis.call('XACK', KEYS[1], ARGV[1], ARGV[at])
    redis.call('XDEL', KEYS[1], ARGV[at])
    redis.pcall('XADD', KEYS[1], '*', unpack(copy))
    back = back + 1
  end
end
if back > 0 and ARGV[3] ~= '' then
  redis.call('PUBLISH', ARGV[3], '')
end
return back
