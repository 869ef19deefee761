-- take.lua: take what a source names into the pool.
-- KEYS[1] zset  eligible members, score = allocations so far
-- KEYS[2] hash  members set aside: these stay so
-- KEYS[4] zset  candidates, score = when to look at them, in ms by the clock of Redis
-- KEYS[6] zset  eligible members that catch up slowly, scores as in KEYS[1]
-- KEYS[7] zset  the same members, score = the turn at which each may be chosen next
-- the last but one, zset: what the source names, score = when the last reading began that found it, in us
-- ARGV[1] since when this reading began, from begin_reading.lua
-- ARGV[2] kind  "eligible" or "candidate": what newcomers become
-- ARGV[3] which "new": only those that the source has not named so far; "all": also those, for a pool that was lost
-- ARGV[4] start as for add.lua
-- ARGV[5..]     members
-- Returns {how many entered a state that were in none, or were candidates and are eligible; the start}, both strings; the
--         start serves the next call of the same reading
-- Writes  one ZADD per member, one more per newcomer.  Cost  O(k log m), k members given, m in the largest key
-- Redis 7.0 on a shared 2-core VM, a million members: 5.1 us of its CPU per newcomer, 2.2 per member that was named before;
-- 138 bytes of memory for what the source names, beside 135 in KEYS[1], for members of 40 bytes.
-- Redis 7.0 on a shared 2-core VM, 100,000 members: 200 newcomers took 2.0 ms at the longest (1.1 at the median), 200 that were named before 0.5 (0.3).

local candidates, source = KEYS[4], KEYS[#KEYS - 1]
local since, kind, which, policy = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local start = start_of(policy, KEYS[1])
if not tonumber(since) or (kind ~= 'eligible' and kind ~= 'candidate') or (start and not is_number(start)) then
  return redis.error_reply('ERR take: needs the time, what newcomers become, which, and a start as for add')
end

local now = now_ms()
local entered = 0
for i = 5, #ARGV do
  local member = ARGV[i]
  -- GT: a reading that began later may have been here. Whoever the source named before and is not in the pool any more was
  -- taken out on purpose, and stays out.
  local is_new = redis.call('ZADD', source, 'GT', since, member) == 1 or which == 'all'
  if kind == 'candidate' then
    if is_new then
      entered = entered + nominate(member, now)
    end
  elseif is_new or (has_candidates and redis.call('ZSCORE', candidates, member)) then
    entered = entered + join(member, policy, start)
  end
end
return {tostring(entered), policy == 'ramp' and policy or start or '0'}
