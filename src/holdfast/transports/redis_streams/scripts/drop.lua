-- Acknowledge messages and delete them, each only if it names the job that it is said to name.
--
-- KEYS  1 the stream
-- ARGV  1 the group   then id and job_id of each; an empty job_id fits whatever the message says
local dropped = 0
for at = 2, #ARGV, 2 do
  local entries = redis.pcall('XRANGE', KEYS[1], ARGV[at], ARGV[at])
  if not entries.err then
    local fits = #entries == 0 or ARGV[at + 1] == ''
    if not fits then
      local fields = entries[1][2]
      for place = 1, #fields, 2 do
        fits = fits or (fields[place] == 'job_id' and fields[place + 1] == ARGV[at + 1])
      end
    end
    if fits then
      redis.call('XACK', KEYS[1], ARGV[1], ARGV[at])
      dropped = dropped + redis.call('XDEL', KEYS[1], ARGV[at])
    end
  end
end
return dropped
