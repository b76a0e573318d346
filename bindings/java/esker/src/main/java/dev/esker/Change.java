package dev.esker;

import java.time.Duration;
import java.time.Instant;
import java.util.Optional;

/**
 * A change made by a commit.
 *
 * @param kind what was done
 * @param keyspace the number of the keyspace: see {@link Keyspace#id}
 * @param key the key; the first key of a range
 * @param value the value, the operand, the name; the first key behind a range; null if there is none
 * @param expiresAt when a value that was put expires
 * @param mergedAt when an operand was merged
 * @param lifetime the lifetime of a value that begins with an operand, after {@code mergedAt}; without one it
 *     does not expire
 */
public record Change(
        Kind kind,
        int keyspace,
        byte[] key,
        byte[] value,
        Optional<Instant> expiresAt,
        Optional<Instant> mergedAt,
        Optional<Duration> lifetime) {
    /** What a change does. Programs have to expect new kinds. */
    public enum Kind {
        /** The key was set to the value. */
        PUT,
        /** The value was merged into the key, as an operand. */
        MERGE,
        /** The key was removed, or did not exist. */
        DELETE,
        /** The key was removed because it has expired. */
        EXPIRE,
        /** All keys from the key on, below the value, were removed. A value of null: to the end. */
        DELETE_RANGE,
        /** The keyspace got the name: it was created or renamed. */
        NAMED,
        /** The name is free: its keyspace was dropped or renamed. */
        UNNAMED,
        /** Another change of the catalog, such as an option of a keyspace. */
        OTHER;

        static Kind of(int number) {
            return number >= 1 && number < values().length ? values()[number - 1] : OTHER;
        }
    }
}
