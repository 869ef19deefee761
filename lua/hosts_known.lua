-- hosts_known.lua: how often hosts have come to those that have banned members, or left. In front of the scripts that need it,
-- behind clock.lua.

-- As text. What another tool has written there that is no such number becomes the time, which is more than any was.
local function changes_of_hosts(key)
  local number = redis.call('GET', key) or '0'
  if #number > 15 or not string.find(number, '^%d+$') then
    number = string.format('%.0f', now_ms())
    redis.call('SET', key, number)
  end
  return number
end

-- One more.
local function change_hosts(key)
  redis.call('SET', key, string.format('%.0f', changes_of_hosts(key) + 1))
end

