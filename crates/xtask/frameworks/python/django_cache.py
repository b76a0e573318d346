"""Django: the cache of its own and sessions that are kept in it."""
import sys
import time

import django
from django.conf import settings

cache = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": f"redis://127.0.0.1:{sys.argv[1]}/7"}
settings.configure(CACHES={"default": cache}, SESSION_ENGINE="django.contrib.sessions.backends.cache", SECRET_KEY="k")
django.setup()

from django.contrib.sessions.backends.cache import SessionStore  # noqa: E402
from django.core.cache import cache  # noqa: E402

cache.clear()
cache.set("a", {"list": [1, 2]}, 60)
assert cache.get("a") == {"list": [1, 2]}
assert not cache.add("a", 1) and cache.add("b", 5)
assert cache.incr("b", 3) == 8 and cache.decr("b") == 7
assert cache.set_many({"c": 1, "d": "two"}, timeout=60) == []
assert cache.get_many(["a", "c", "d", "none"]) == {"a": {"list": [1, 2]}, "c": 1, "d": "two"}
assert cache.get_or_set("e", lambda: 9, 60) == 9
assert cache.touch("a", 1) and cache.has_key("a")
time.sleep(1.1)
assert cache.get("a") is None
cache.delete_many(["c", "d"])
assert cache.get("c") is None
session = SessionStore()
session["user"] = 42
session.save()
assert SessionStore(session.session_key)["user"] == 42
session.cycle_key()
session.flush()
assert not SessionStore().exists(session.session_key or "none")
