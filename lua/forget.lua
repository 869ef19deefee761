-- forget.lua: what is remembered of members beside their state goes with them.
-- KEYS[1] hash  member -> its last checks (tally.lua)
-- KEYS[2] hash  member -> its country
-- KEYS[3] hash  verdicts on candidates (judged.lua)
-- KEYS[4] zset  the same members, score = until when each verdict is kept; without these two, verdicts stay
-- ARGV[1..]     members
-- Returns "ok"
-- Writes  one deletion per key.  Cost  O(k log m), k members given, m in the largest key
-- Redis 7.0 on a shared 2-core VM that others used too, 100,000 members: 200 at once took 0.8 ms at the longest (0.4 at the median).

for i = 1, math.min(#KEYS, 3) do
  redis.call('HDEL', KEYS[i], unpack(ARGV))
end
if KEYS[4] then
  redis.call('ZREM', KEYS[4], unpack(ARGV))
end
return 'ok'
