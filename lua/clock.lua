-- clock.lua: the time, the same for every gateway. In front of the scripts that need it.

-- In ms since 1970-01-01 UTC, by the clock of Redis.
local function now_ms()
  local now = redis.call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

