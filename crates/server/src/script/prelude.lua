-- What scripts see beside what the server gives them. It is loaded once, with functions that report what has happened.
--
-- Each script runs in an environment of its own: it reads what is here, and writes nowhere. What it puts into a library
-- table, in ways that a metatable does not see, ends with the script. A script that must end cannot catch the error that
-- ends it. A library of functions has an environment of its own for its lifetime, so it cannot write in these ways either.
-- While it is loaded, it sees only `redis`; its functions see what scripts see.

local must_end, where, text_of, libraries = ...
local error, pcall, xpcall, type, tostring, setmetatable, getmetatable = error, pcall, xpcall, type, tostring, setmetatable, getmetatable
local rawget, rawset, select, resume, concat = rawget, rawset, select, coroutine.resume, table.concat

local function refuse() error("Attempt to modify a readonly table", 2) end
local seals = setmetatable({}, { __mode = "k" })
local function seal(index)
  local sealed = setmetatable({}, { __index = index, __newindex = refuse, __metatable = false })
  seals[sealed] = true
  return sealed
end

local function unknown(name)
  error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 3)
end

-- An error of the server as scripts see it.
local function problem_of(problem)
  if type(problem) == "userdata" then return { err = text_of(problem) } end
  return problem
end

-- Passes on the results of a protected call, unless the script must end.
local function pass(is_well, ...)
  must_end()
  if is_well then return true, ... end
  return false, problem_of((...))
end

local base = {}
for _, name in ipairs({ "assert", "error", "gcinfo", "ipairs", "next", "pairs", "rawequal", "rawget", "rawset", "select",
  "setmetatable", "tonumber", "tostring", "type", "_VERSION" }) do
  base[name] = _G[name]
end
-- Lua 5.1 counts the results in an int, which may overflow, and then writes beyond its stack.
base.unpack = function(list, first, last)
  first, last = first or 1, last or #list
  if not (last - first < 8000 and first > -2147483648 and last < 2147483647) then
    error("too many results to unpack", 2)
  end
  return unpack(list, first, last)
end
-- The collector's settings are the same for all scripts. If the collector has much to do, a script may end in between.
local function step(size)
  while true do
    must_end()
    if collectgarbage("step", size < 1000 and size or 1000) then return true end
    size = size - 1000
    if size <= 0 then return false end
  end
end
base.collectgarbage = function(option, ...)
  if option == "step" then return step(tonumber((...)) or 0) end
  if option == "count" then return collectgarbage(option) end
  if option ~= nil and option ~= "collect" then
    error("collectgarbage: a script may collect, count and step", 2)
  end
  -- What has become garbage since the collector began is left for the second pass.
  step(math.huge)
  step(math.huge)
  return 0
end

-- Passes on what a function of `patterns`, `texts` or `cjson` gives, or raises its error where its caller was called.
local function told(is_well, ...)
  if not is_well then error((...), 3) end
  return ...
end
local patterns = libraries.patterns
local find, match, gmatch, gsub = patterns.find, patterns.match, patterns.gmatch, patterns.gsub
string.find = function(...) return told(find(...)) end
string.match = function(...) return told(match(...)) end
string.gmatch = function(...)
  local is_well, step = gmatch(...)
  if not is_well then error(step, 2) end
  return function() return told(step()) end
end
string.gfind = string.gmatch
local rep, concatenate = libraries.texts.rep, libraries.texts.concat
string.rep = function(...) return told(rep(...)) end
table.concat = function(...) return told(concatenate(...)) end

local encode, decode = libraries.cjson.encode, libraries.cjson.decode
libraries.cjson.encode = function(...) return told(encode(...)) end
libraries.cjson.decode = function(...) return told(decode(...)) end

-- Calls a function. An error that it raises "where it was called" names no place, as Lua's functions have none.
local function call_by_none(call, ...) return call(...) end
-- Returns what is between two matches, the second match, and what a call returns for its captures.
local function replaced(call, is_well, between, found, ...)
  if not (is_well and found) then return is_well, between end
  return true, between, found, (call_by_none(call, ...))
end
-- Adds a part of a text, and returns how many parts there are: many parts are joined into one.
local function add(parts, count, part)
  if count < 1000 then
    parts[count + 1] = part
    return count + 1
  end
  parts.whole[#parts.whole + 1] = concat(parts, "", 1, count)
  parts[1] = part
  return 1
end
string.gsub = function(...)
  local is_well, text, number = gsub(...)
  if not is_well then error(text, 2) end
  if number then return text, number end
  local step, call = text, (select(3, ...))
  if type(call) == "table" then
    local values = call
    call = function(key) return values[key] end
  end
  local parts, count, number = { whole = {} }, 0, 0
  while true do
    local is_well, between, found, value = replaced(call, step())
    if not is_well then error(between, 2) end
    count = add(parts, count, between)
    if not found then
      return concat(parts.whole) .. concat(parts, "", 1, count), number
    end
    if not value then
      value = found
    elseif type(value) ~= "string" and type(value) ~= "number" then
      error("invalid replacement value (a " .. type(value) .. ")", 2)
    end
    count = add(parts, count, value)
    number = number + 1
  end
end

-- The argument at a place. Raises Lua's error, where its caller was called, when it is of another type.
local function expect(name, place, expected, ...)
  local value = select(place, ...)
  if type(value) ~= expected then
    local actual = select("#", ...) < place and "no value" or type(value)
    error("bad argument #" .. place .. " to '" .. name .. "' (" .. expected .. " expected, got " .. actual .. ")", 3)
  end
  return value
end

-- Lua's own `sort` executes instructions, after which a script may end, only when the comparing function does.
local sort = table.sort
local function less(a, b) return a < b end
-- What an error of `less` begins with. An error of Lua's own order names no place.
local place_of_less = select(2, pcall(less)):match("^redis:%d+: ")
table.sort = function(...)
  local list, call = expect("sort", 1, "table", ...), less
  if select(2, ...) ~= nil then call = expect("sort", 2, "function", ...) end
  if libraries.is_of_c(call) then
    local compare = call
    call = function(a, b) return compare(a, b) end
  end
  local is_well, problem = pcall(sort, list, call)
  if is_well then return end
  if problem == "invalid order function for sorting" then error(problem, 2) end
  if call == less and type(problem) == "string" and problem:sub(1, #place_of_less) == place_of_less then
    problem = problem:sub(#place_of_less + 1)
  end
  error(problem, 0)
end

-- Lua's own function moves everything after the place, even if the place is two billion before the list.
local insert = table.insert
table.insert = function(...)
  local list, count = expect("insert", 1, "table", ...), select("#", ...)
  if count == 2 then return insert(...) end
  if count ~= 3 then error("wrong number of arguments to 'insert'", 2) end
  local _, place, value = ...
  place = tonumber(place) or expect("insert", 2, "number", ...)
  if place >= 1 and place < 2147483648 then return insert(list, place, value) end
  if not (place > -2147483649 and place < 1) then
    error("bad argument #2 to 'insert' (position out of bounds)", 2)
  end
  place = math.ceil(place)
  for at = #list + 1, place + 1, -1 do rawset(list, at, rawget(list, at - 1)) end
  rawset(list, place, value)
end

-- Lua's own functions execute no instruction when the functions that they call do not.
table.foreach = function(...)
  local list, call = expect("foreach", 1, "table", ...), expect("foreach", 2, "function", ...)
  for key, value in next, list do
    local result = call_by_none(call, key, value)
    if result ~= nil then return result end
  end
end
table.foreachi = function(...)
  local list, call = expect("foreachi", 1, "table", ...), expect("foreachi", 2, "function", ...)
  for place = 1, #list do
    local result = call_by_none(call, place, rawget(list, place))
    if result ~= nil then return result end
  end
end

base.getmetatable = function(value)
  if type(value) == "string" then return nil end
  return getmetatable(value)
end
-- Redis's `pcall` gives the text of an error that is a table with one. Its `xpcall` gives the table.
local function pass_text(is_well, ...)
  must_end()
  if is_well then return true, ... end
  local problem = problem_of((...))
  local text = type(problem) == "table" and problem.err
  if type(text) == "string" or type(text) == "number" then return false, text end
  return false, problem
end
base.pcall = function(...) return pass_text(pcall(...)) end
base.xpcall = function(call, handler)
  return pass(xpcall(call, function(problem) return handler(problem_of(problem)) end))
end

local sealed = { bit = libraries.bit, cjson = libraries.cjson, cmsgpack = libraries.cmsgpack, struct = libraries.struct,
  math = math, string = string, table = table }
local coroutines = {}
for name, call in pairs(coroutine) do coroutines[name] = call end
coroutines.resume = function(...) return pass(resume(...)) end
sealed.coroutine = coroutines

getmetatable("").__metatable = false

-- Adds to a table what code in an environment sees beside `redis`.
local function equip(seen, environment)
  seen._G = environment
  -- Text only: code that was compiled elsewhere could do anything.
  seen.loadstring = function(text, name)
    if type(text) ~= "string" then error("bad argument #1 to 'loadstring' (string expected)", 2) end
    if name ~= nil and type(name) ~= "number" then expect("loadstring", 2, "string", text, name) end
    if text:byte(1) == 27 then return nil, "what was compiled before cannot be loaded" end
    local at = 1
    local loaded, why = libraries.load(function()
      must_end()
      local piece = text:sub(at, at + 65535)
      at = at + #piece
      return piece
    end, name or text)
    -- `load` takes the error that ends the script for an error of the loaded text.
    must_end()
    if loaded then libraries.setfenv(loaded, environment) end
    return loaded, why
  end
  seen.load = function(source, name)
    local parts = {}
    while type(source) == "function" do
      local part = source()
      if part == nil or part == "" then break end
      parts[#parts + 1] = part
    end
    return seen.loadstring(type(source) == "function" and table.concat(parts) or source, name)
  end
  for name, library in pairs(sealed) do seen[name] = seal(library) end
  for name, value in pairs(base) do seen[name] = value end
end

-- The environment of a script.
local function environment(redis, keys, arguments)
  local own = { redis = seal(redis), KEYS = keys, ARGV = arguments }
  equip(own, own)
  return setmetatable(own, {
    __index = function(_, name) unknown(name) end,
    __newindex = refuse,
    __metatable = false,
  })
end

-- What libraries see as `redis`, and whether a library is being loaded.
local current, is_loading

-- The environment of a library.
local function library()
  local own, seen = {}, {}
  equip(seen, own)
  seen.rawset = function(table, key, value)
    if table == own or seals[table] then error("Attempt to modify a readonly table", 2) end
    return rawset(table, key, value)
  end
  return setmetatable(own, {
    __index = function(_, name)
      if name == "redis" then return current end
      local value = seen[name]
      if value == nil or is_loading then unknown(name) end
      return value
    end,
    __newindex = refuse,
    __metatable = false,
  })
end

-- Runs a function: true and what it returns, or false and a table with the error and where it was.
local function run(call, ...)
  local arguments, count = { ... }, select("#", ...)
  return xpcall(function() return call(unpack(arguments, 1, count)) end, function(problem)
    local source, line = where()
    local text
    problem = problem_of(problem)
    if type(problem) == "table" then
      text = rawget(problem, "err")
      if type(text) ~= "string" then text = "ERR the script raised an error without a text" end
    else
      text = "ERR " .. tostring(problem)
    end
    return { err = text, source = source, line = line }
  end)
end

-- Runs a function of a library, or the library itself while it is loaded.
local function run_in_library(redis, loads, call, ...)
  is_loading = loads
  current = seal(loads and function(_, name)
    local value = redis[name]
    if value == nil then unknown(name) end
    return value
  end or redis)
  return run(call, ...)
end

return environment, library, run, run_in_library
