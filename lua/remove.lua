-- remove.lua: take members out, also of those set aside.
-- KEYS[1] zset  eligible members
-- KEYS[2] hash  members set aside
-- ARGV[1..]     members
-- Returns how many were there, as a string
-- Writes  one ZREM and one HDEL per member.  Cost  O(k log m), k members given, m in the set

local removed = 0
for i = 1, #ARGV do
  local found = redis.call('ZREM', KEYS[1], ARGV[i]) + redis.call('HDEL', KEYS[2], ARGV[i])
  if found > 0 then
    removed = removed + 1
  end
end
return tostring(removed)
