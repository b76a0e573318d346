package dev.esker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import java.math.BigInteger;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.UUID;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Replays bindings/conformance.jsonl: calls, and the reply that each language must get. */
class ConformanceTest {
    private static final HexFormat HEX = HexFormat.of();

    @TempDir
    Path directory;
    private Path at;
    private Esker db;
    private final Map<String, Keyspace> keyspaces = new HashMap<>();
    private final Map<Integer, String> names = new HashMap<>();
    /** Transactions, snapshots and batches, by their number in the file. */
    private final Map<Integer, AutoCloseable> transactions = new HashMap<>();
    private final Map<Integer, Transaction.Savepoint> savepoints = new HashMap<>();
    private long mark;

    private static Path file() {
        for (Path path = Path.of("").toAbsolutePath(); path != null; path = path.getParent()) {
            Path file = path.resolve("bindings/conformance.jsonl");
            if (Files.exists(file)) {
                return file;
            }
        }
        throw new AssertionError("there is no bindings/conformance.jsonl above the working directory");
    }

    private void open(Path path) {
        at = path;
        db = Esker.options().durability(Durability.NONE).feed(64 << 20, Duration.ofHours(1)).open(path);
        keyspaces.clear();
    }

    @AfterEach
    void close() {
        if (db != null) {
            db.close();
        }
    }

    @Test
    void theFileIsReplayed() throws Exception {
        open(directory.resolve("db"));
        int number = 0;
        int replies = 0;
        for (String line : Files.readAllLines(file())) {
            number++;
            if (line.isBlank()) {
                continue;
            }
            JsonObject call = JsonParser.parseString(line).getAsJsonObject();
            if (!call.has("do")) {
                continue;
            }
            String where = "line " + number + ": " + line;
            JsonElement error = call.get("error");
            try {
                JsonElement reply = run(call);
                assertTrue(error == null || error.isJsonNull(), where + " did not fail");
                if (call.has("is")) {
                    assertEquals(call.get("is"), reply, where);
                    replies++;
                }
            } catch (EskerException e) {
                assertNotNull(error, where + " failed: " + e);
                assertEquals(error.getAsString(), e.status().name().toLowerCase(Locale.ROOT), where);
                replies++;
            }
        }
        db.check();
        assertTrue(replies > 100, "only " + replies + " replies");
    }

    private static boolean has(JsonObject call, String name) {
        return call.has(name) && !call.get(name).isJsonNull();
    }

    private static String text(JsonObject call, String name) {
        return call.get(name).getAsString();
    }

    private static byte[] bytes(JsonObject call, String name) {
        return has(call, name) ? HEX.parseHex(text(call, name)) : null;
    }

    private static JsonElement hex(byte[] bytes) {
        return bytes == null ? JsonNull.INSTANCE : new JsonPrimitive(HEX.formatHex(bytes));
    }

    private Keyspace keyspace(JsonObject call) {
        return keyspace(text(call, "keyspace"));
    }

    private Keyspace keyspace(String name) {
        return keyspaces.computeIfAbsent(name, key -> {
            Keyspace keyspace = db.keyspace(key);
            names.put(keyspace.id(), key);
            return keyspace;
        });
    }

    /** The keyspace in the call's transaction, if it names one. Wrong calls fail in the library. */
    private ReadsWrites target(JsonObject call) {
        Keyspace keyspace = keyspace(call);
        if (!has(call, "txn")) {
            return keyspace;
        }
        return (ReadsWrites) switch (transactions.get(call.get("txn").getAsInt())) {
            case Transaction t -> t.keyspace(keyspace);
            case Snapshot t -> t.keyspace(keyspace);
            case Batch t -> t.keyspace(keyspace);
            default -> throw new AssertionError(call + " in no transaction");
        };
    }

    private JsonElement run(JsonObject call) throws Exception {
        String name = text(call, "do");
        JsonElement reply = switch (name) {
            case "get" -> hex(target(call).get(bytes(call, "key")));
            case "contains" -> new JsonPrimitive(target(call).containsKey(bytes(call, "key")));
            case "remove" -> hex(target(call).remove(bytes(call, "key")));
            case "swap" -> new JsonPrimitive(swap(call));
            case "add" -> new JsonPrimitive(Long.toString(
                    target(call).getAndAdd(bytes(call, "key"), Long.parseLong(text(call, "by")))));
            case "len" -> new JsonPrimitive(target(call).size());
            case "ttl" -> new JsonPrimitive(ttl(target(call), bytes(call, "key")));
            case "many" -> many(call);
            case "scan" -> scan(call);
            case "names" -> array(db.keyspaceNames().stream().map(JsonPrimitive::new).toList());
            case "feed" -> feed();
            case "pack" -> pack(call);
            case "unpack" -> {
                Tuple.unpack(bytes(call, "key"));
                yield null;
            }
            default -> null;
        };
        if (reply == null && !name.equals("unpack")) {
            change(name, call);
        }
        // Numbers are equal if they are of one type.
        boolean isNumber = reply instanceof JsonPrimitive p && p.isNumber();
        return isNumber ? JsonParser.parseString(reply.getAsString()) : reply;
    }

    private void change(String name, JsonObject call) throws Exception {
        switch (name) {
            case "keyspace" -> keyspace(call);
            case "rename" -> rename(text(call, "from"), text(call, "to"));
            case "drop" -> {
                db.dropKeyspace(text(call, "keyspace"));
                keyspaces.remove(text(call, "keyspace"));
            }
            case "operator" -> keyspace(call).setMergeOperator(text(call, "operator"));
            case "put" -> {
                if (has(call, "ttl_ms")) {
                    Duration ttl = Duration.ofMillis(call.get("ttl_ms").getAsLong());
                    target(call).put(bytes(call, "key"), bytes(call, "value"), ttl);
                } else {
                    target(call).put(bytes(call, "key"), bytes(call, "value"));
                }
            }
            case "delete" -> target(call).delete(bytes(call, "key"));
            case "delete_range" -> target(call).deleteRange(bytes(call, "start"), bytes(call, "end"));
            case "delete_prefix" -> target(call).deletePrefix(bytes(call, "prefix"));
            case "merge" -> target(call).merge(bytes(call, "key"), bytes(call, "operand"));
            case "sleep" -> Thread.sleep(call.get("ms").getAsLong());
            case "mark" -> mark = db.newestCommit();
            case "reopen" -> {
                db.close();
                open(at);
            }
            case "checkpoint" -> {
                Path copy = directory.resolve("copy" + System.nanoTime());
                db.checkpoint(copy);
                db.close();
                open(copy);
            }
            default -> transaction(name, call);
        }
    }

    private void rename(String from, String to) {
        db.renameKeyspace(from, to);
        Keyspace keyspace = keyspaces.remove(from);
        if (keyspace != null) {
            names.put(keyspace.id(), to);
            keyspaces.put(to, keyspace);
        }
    }

    private void transaction(String name, JsonObject call) throws Exception {
        int number = call.get("txn").getAsInt();
        AutoCloseable txn = transactions.get(number);
        switch (name) {
            case "begin" -> transactions.put(number, switch (text(call, "kind")) {
                case "read_only" -> db.snapshot();
                case "write_only" -> db.batch();
                case String kind -> db.beginTransaction(Isolation.valueOf(kind.toUpperCase(Locale.ROOT)));
            });
            case "savepoint" ->
                savepoints.put(call.get("savepoint").getAsInt(), ((Transaction) txn).savepoint());
            case "rollback_to" ->
                ((Transaction) txn).rollbackTo(savepoints.get(call.get("savepoint").getAsInt()));
            case "commit" -> {
                switch (txn) {
                    case Transaction t -> t.commit();
                    case Batch t -> t.commit();
                    default -> txn.close();
                }
            }
            case "rollback" -> txn.close();
            default -> throw new AssertionError("this replayer does not know " + call);
        }
    }

    private boolean swap(JsonObject call) {
        byte[] key = bytes(call, "key");
        byte[] expected = bytes(call, "expected");
        byte[] value = bytes(call, "value");
        if (!has(call, "txn")) {
            return keyspace(call).compareAndSwap(key, expected, value);
        }
        ReadsWrites target = target(call);
        boolean isSwapped = java.util.Arrays.equals(target.get(key), expected);
        if (isSwapped && value == null) {
            target.delete(key);
        } else if (isSwapped) {
            target.put(key, value);
        }
        return isSwapped;
    }

    private static String ttl(Reads reads, byte[] key) {
        if (reads.ttl(key).isPresent()) {
            return "some";
        }
        return reads.containsKey(key) ? "none" : "missing";
    }

    private static JsonArray array(List<? extends JsonElement> items) {
        JsonArray array = new JsonArray();
        items.forEach(array::add);
        return array;
    }

    private JsonElement many(JsonObject call) {
        List<byte[]> keys = new ArrayList<>();
        call.getAsJsonArray("keys").forEach(key -> keys.add(HEX.parseHex(key.getAsString())));
        return array(target(call).getAll(keys).stream().map(ConformanceTest::hex).toList());
    }

    private JsonElement scan(JsonObject call) {
        Reads reads = target(call);
        Scan<Entry> scan = has(call, "prefix")
                ? reads.prefix(bytes(call, "prefix")) : reads.range(bytes(call, "start"), bytes(call, "end"));
        if (has(call, "reverse") && call.get("reverse").getAsBoolean()) {
            scan = scan.reversed();
        }
        if (has(call, "limit")) {
            scan = scan.limit(call.get("limit").getAsLong());
        }
        return array(scan.toList().stream().map(e -> array(List.of(hex(e.key()), hex(e.value())))).toList());
    }

    private JsonElement feed() {
        JsonArray commits = new JsonArray();
        db.sync();
        long newest = db.newestCommit();
        try (Feed feed = db.feed(mark)) {
            while (feed.seqno() < newest && feed.next(Duration.ofSeconds(1))) {
                JsonArray changes = new JsonArray();
                for (Change change : feed.changes()) {
                    if (change.kind().ordinal() > Change.Kind.DELETE_RANGE.ordinal()
                            || change.kind() == Change.Kind.EXPIRE) {
                        continue;
                    }
                    JsonObject json = new JsonObject();
                    json.addProperty("change", change.kind().name().toLowerCase(Locale.ROOT));
                    json.addProperty("keyspace", names.get(change.keyspace()));
                    json.add("key", hex(change.key()));
                    json.add("value", hex(change.value()));
                    changes.add(json);
                }
                if (!changes.isEmpty()) {
                    commits.add(changes);
                }
            }
        }
        return commits;
    }

    private static JsonElement pack(JsonObject call) {
        Tuple tuple = tuple(call.getAsJsonArray("fields"));
        byte[] is = HEX.parseHex(text(call, "is"));
        assertEquals(tuple, Tuple.unpack(is));
        return hex(tuple.pack());
    }

    private static Tuple tuple(JsonArray fields) {
        List<Object> list = new ArrayList<>();
        fields.forEach(field -> list.add(field(field)));
        return Tuple.of(list);
    }

    private static Object field(JsonElement field) {
        if (field.isJsonNull()) {
            return null;
        }
        Map.Entry<String, JsonElement> only = field.getAsJsonObject().entrySet().iterator().next();
        JsonElement value = only.getValue();
        return switch (only.getKey()) {
            case "bytes" -> HEX.parseHex(value.getAsString());
            case "text" -> value.getAsString();
            case "int" -> new BigInteger(value.getAsString());
            case "float" -> Float.intBitsToFloat(HexFormat.fromHexDigits(value.getAsString()));
            case "double" -> Double.longBitsToDouble(HexFormat.fromHexDigitsToLong(value.getAsString()));
            case "bool" -> value.getAsBoolean();
            case "uuid" -> new UUID(
                    HexFormat.fromHexDigitsToLong(value.getAsString(), 0, 16),
                    HexFormat.fromHexDigitsToLong(value.getAsString(), 16, 32));
            case "tuple" -> tuple(value.getAsJsonArray());
            default -> throw new AssertionError("a field of " + only.getKey());
        };
    }
}
