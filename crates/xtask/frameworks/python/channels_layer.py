"""channels_redis: both layers; messages to one channel, to a group, in order, and to two loops at once."""
import asyncio
import sys

from channels_redis.core import RedisChannelLayer
from channels_redis.pubsub import RedisPubSubChannelLayer

host = f"redis://127.0.0.1:{sys.argv[1]}/8"


async def main():
    for kind in (RedisChannelLayer, RedisPubSubChannelLayer):
        layer = kind(hosts=[host])
        names = [await layer.new_channel() for _ in range(3)]
        for name in names:
            await layer.group_add("room", name)
        waiting = [asyncio.create_task(layer.receive(name)) for name in names]
        await asyncio.sleep(0.2)
        await layer.group_send("room", {"type": "chat", "text": "hello"})
        for task in waiting:
            assert (await asyncio.wait_for(task, 10))["text"] == "hello"
        for n in range(50):
            await layer.send(names[0], {"type": "n", "n": n})
        assert [(await asyncio.wait_for(layer.receive(names[0]), 10))["n"] for _ in range(50)] == list(range(50))
        await layer.group_discard("room", names[1])
        await layer.group_send("room", {"type": "chat", "text": "again"})
        assert (await asyncio.wait_for(layer.receive(names[2]), 10))["text"] == "again"
        await layer.flush()
        await (layer.close_pools() if hasattr(layer, "close_pools") else asyncio.sleep(0))


asyncio.run(main())
