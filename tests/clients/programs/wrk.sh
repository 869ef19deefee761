# needs: wrk
# debian: wrk
# breaks off: yes
. "$CHECK"
echo "version $(wrk --version 2>&1 | head -n 1 | cut -d' ' -f2)"
# wrk speaks to one address; a script makes its requests absolute-form, which makes that address a proxy.
cat >absolute.lua <<LUA
local hello = wrk.format("GET", "$http/")
local threads = {}
function setup(thread) threads[#threads + 1] = thread end
function init() wrong = 0 end
function request() return hello end
function response(status, headers, body)
  local by = headers["Proxy-Status"] or headers["proxy-status"] or ""
  if status ~= 200 or body ~= "$hello\n" or not by:find("evenkeel; next%-hop=") then wrong = wrong + 1 end
end
function done(summary)
  local errors, sum = summary.errors, 0
  for _, thread in ipairs(threads) do sum = sum + thread:get("wrong") end
  sum = sum + errors.connect + errors.read + errors.write + errors.timeout
  io.write(string.format("answered %d wrong %d\n", summary.requests, sum))
end
LUA
load() {
    wrk --threads 1 --connections 16 --duration 2s --script absolute.lua --header "Host: $ORIGIN" "$PROXY/" >report || { cat report; return 1; }
    grep -q '^answered [1-9][0-9]* wrong 0$' report || { cat report; return 1; }
}
check http "16 connections for 2 s" load
