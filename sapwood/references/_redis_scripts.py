"""What a reference store does inside a Redis server, where each script runs alone."""

from __future__ import annotations

from typing import Final

# Keys begin with ARGV[1]. `item:<id>` is a hash, `leases:<id>` a sorted set of owners by the end of their lease,
# `blob:<blob>` a hash of pieces by number, `owned:<owner>` a set of ids, `ids` a sorted set of all ids with score 0,
# for walking, `used` the same with the moment of last use, `uploads` the blobs under way by their last piece,
# `totals` a hash. Moments come from the caller, as text that keeps every digit.
PRELUDE: Final = """
local p, now, idle_before = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local max_references, max_bytes = tonumber(ARGV[4]), tonumber(ARGV[5])
local function add(field, number)  -- Redis takes no -0
    if number ~= 0 then redis.call('HINCRBY', p .. 'totals', field, number) end
end
local function held(id)
    return redis.call('ZCOUNT', p .. 'leases:' .. id, '(' .. ARGV[2], '+inf') > 0
end
local function alive(id)
    local found = redis.call('HMGET', p .. 'item:' .. id, 'kept_until', 'accessed', 'corrupt')
    if not found[1] then return false end
    if found[3] then return true end
    if tonumber(found[1]) > now and tonumber(found[2]) > idle_before then return true end
    return held(id)
end
local function item(id)
    return redis.call('HMGET', p .. 'item:' .. id,
        'type', 'content_type', 'size', 'created', 'blob', 'pieces', 'stored_size', 'corrupt')
end
local function touch(id)
    redis.call('HSET', p .. 'item:' .. id, 'accessed', ARGV[2])
    redis.call('ZADD', p .. 'used', ARGV[2], id)
end
local function drop_leases(id)
    local owners = redis.call('ZRANGE', p .. 'leases:' .. id, 0, -1)
    for _, owner in ipairs(owners) do redis.call('SREM', p .. 'owned:' .. owner, id) end
    redis.call('DEL', p .. 'leases:' .. id)
    return #owners
end
local function end_leases(id)
    local ended = redis.call('ZRANGEBYSCORE', p .. 'leases:' .. id, '-inf', ARGV[2])
    for _, owner in ipairs(ended) do
        redis.call('SREM', p .. 'owned:' .. owner, id)
        redis.call('ZREM', p .. 'leases:' .. id, owner)
    end
    add('leases', -#ended)
    return #ended
end
local function drop(id)
    local found = redis.call('HMGET', p .. 'item:' .. id, 'blob', 'size', 'stored_size', 'corrupt')
    if not found[1] then return 0 end
    redis.call('UNLINK', p .. 'blob:' .. found[1])
    redis.call('DEL', p .. 'item:' .. id)
    redis.call('ZREM', p .. 'ids', id)
    redis.call('ZREM', p .. 'used', id)
    add('items', -1)
    add('bytes', -tonumber(found[2]))
    add('stored_bytes', -tonumber(found[3]))
    if found[4] then add('corrupt', -1) end
    return tonumber(found[3])
end
local function forget(id)
    local freed = drop(id)
    add('leases', -drop_leases(id))
    return freed
end
local function hold(id, owner, expires)
    if redis.call('ZADD', p .. 'leases:' .. id, expires, owner) == 1 then
        add('leases', 1)
    end
    redis.call('SADD', p .. 'owned:' .. owner, id)
end
local function exceeded()
    local found = redis.call('HMGET', p .. 'totals', 'items', 'stored_bytes')
    return (max_references and tonumber(found[1] or 0) > max_references)
        or (max_bytes and tonumber(found[2] or 0) > max_bytes)
end
local function evict(stored)
    local evicted, freed, skipped = 0, 0, 0
    while exceeded() do
        local id = redis.call('ZRANGE', p .. 'used', skipped, skipped)[1]
        if not id then break end
        if id == stored or held(id) or redis.call('HEXISTS', p .. 'item:' .. id, 'corrupt') == 1 then
            skipped = skipped + 1
        else
            freed = freed + forget(id)
            evicted = evicted + 1
        end
    end
    return evicted, freed
end
local A = 6
"""

PUT: Final = """
redis.call('ZADD', p .. 'uploads', ARGV[2], ARGV[A + 4])
redis.call('HSET', p .. 'blob:' .. ARGV[A + 4], 0, ARGV[A + 10])
"""

COMMIT: Final = """
local id, kept_until, owner, expires, blob = ARGV[A], ARGV[A + 1], ARGV[A + 2], ARGV[A + 3], ARGV[A + 4]
if redis.call('ZREM', p .. 'uploads', blob) == 0 then return false end
local whole = alive(id) and redis.call('HEXISTS', p .. 'item:' .. id, 'corrupt') == 0
if whole then
    redis.call('UNLINK', p .. 'blob:' .. blob)
    local kept = redis.call('HGET', p .. 'item:' .. id, 'kept_until')
    if tonumber(kept_until) > tonumber(kept) then
        redis.call('HSET', p .. 'item:' .. id, 'kept_until', kept_until)
    end
else
    if alive(id) then
        local kept = redis.call('HGET', p .. 'item:' .. id, 'kept_until')
        if tonumber(kept) > tonumber(kept_until) then kept_until = kept end
        drop(id)
    else
        forget(id)
    end
    redis.call('HSET', p .. 'item:' .. id, 'type', ARGV[A + 5], 'content_type', ARGV[A + 6], 'size', ARGV[A + 7],
        'created', ARGV[2], 'blob', blob, 'pieces', ARGV[A + 8], 'stored_size', ARGV[A + 9],
        'kept_until', kept_until, 'resolves', 0)
    redis.call('ZADD', p .. 'ids', 0, id)
    add('items', 1)
    add('bytes', tonumber(ARGV[A + 7]))
    add('stored_bytes', tonumber(ARGV[A + 9]))
end
touch(id)
if owner ~= '' then hold(id, owner, expires) end
evict(id)
return item(id)
"""

BEGIN: Final = """
redis.call('ZADD', p .. 'uploads', now, ARGV[A])
return 1
"""

EXTEND: Final = """
if not redis.call('ZSCORE', p .. 'uploads', ARGV[A]) then return 0 end
redis.call('ZADD', p .. 'uploads', ARGV[2], ARGV[A])
redis.call('HSET', p .. 'blob:' .. ARGV[A], ARGV[A + 1], ARGV[A + 2])
return 1
"""

DISCARD: Final = """
if redis.call('ZREM', p .. 'uploads', ARGV[A]) == 1 then redis.call('UNLINK', p .. 'blob:' .. ARGV[A]) end
return 1
"""

FETCH: Final = """
local id = ARGV[A]
if not alive(id) then return false end
touch(id)
redis.call('HINCRBY', p .. 'item:' .. id, 'resolves', 1)
local found = item(id)
local pieces = {}
if not found[8] then
    for number = 0, tonumber(found[6]) - 1 do
        local piece = redis.call('HGET', p .. 'blob:' .. found[5], number)
        if not piece then break end
        pieces[#pieces + 1] = piece
    end
end
return {found, pieces}
"""

ACQUIRE: Final = """
local id = ARGV[A]
if not alive(id) then return false end
touch(id)
hold(id, ARGV[A + 1], ARGV[A + 2])
return item(id)
"""

RELEASE: Final = """
local function release(id, owner)
    local expires = redis.call('ZSCORE', p .. 'leases:' .. id, owner)
    redis.call('SREM', p .. 'owned:' .. owner, id)
    if not expires then return 0 end
    redis.call('ZREM', p .. 'leases:' .. id, owner)
    add('leases', -1)
    if tonumber(expires) > now then return 1 end
    return 0
end
local owner, ended = ARGV[A], 0
if ARGV[A + 1] ~= '' then return release(ARGV[A + 1], owner) end
for _, id in ipairs(redis.call('SMEMBERS', p .. 'owned:' .. owner)) do ended = ended + release(id, owner) end
return ended
"""

DELETE: Final = """
local id = ARGV[A]
if not alive(id) then return false end
local leases = redis.call('ZRANGEBYSCORE', p .. 'leases:' .. id, '(' .. ARGV[2], '+inf', 'WITHSCORES')
if #leases == 0 then forget(id) end
return leases
"""

QUARANTINE: Final = """
local key = p .. 'item:' .. ARGV[A]
if redis.call('HGET', key, 'blob') ~= ARGV[A + 1] then return 0 end
if redis.call('HSET', key, 'corrupt', ARGV[A + 2]) == 1 then add('corrupt', 1) end
return 1
"""

LIST: Final = """
local result = {}
local ids = redis.call('ZRANGEBYLEX', p .. 'ids', ARGV[A], '+', 'LIMIT', 0, ARGV[A + 1])
for _, id in ipairs(ids) do
    if alive(id) then result[#result + 1] = {id, item(id)} end
end
return {ids[#ids] or false, #ids, result}
"""

DESCRIBE: Final = """
local id = ARGV[A]
if not alive(id) then return false end
return {
    item(id),
    redis.call('ZRANGEBYSCORE', p .. 'leases:' .. id, '(' .. ARGV[2], '+inf', 'WITHSCORES'),
    redis.call('HMGET', p .. 'item:' .. id, 'kept_until', 'accessed', 'resolves'),
}
"""

TOTALS: Final = """
return redis.call('HMGET', p .. 'totals', 'items', 'bytes', 'stored_bytes', 'leases', 'corrupt')
"""

COLLECT: Final = """
local references, freed, leases = 0, 0, 0
local ids = redis.call('ZRANGEBYLEX', p .. 'ids', ARGV[A], '+', 'LIMIT', 0, ARGV[A + 1])
for _, id in ipairs(ids) do
    leases = leases + end_leases(id)
    if not alive(id) then
        freed = freed + forget(id)
        references = references + 1
    end
end
return {ids[#ids] or false, #ids, references, freed, leases}
"""

COLLECT_REST: Final = """
local idle = redis.call('ZRANGEBYSCORE', p .. 'uploads', '-inf', ARGV[A])
for _, blob in ipairs(idle) do
    redis.call('ZREM', p .. 'uploads', blob)
    redis.call('UNLINK', p .. 'blob:' .. blob)
end
local evicted, freed = evict('')
return {#idle, evicted, freed}
"""
