package dev.esker;

import java.io.ByteArrayOutputStream;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.UUID;

/**
 * A key of several fields, in the tuple encoding of FoundationDB: keys are in the order of their fields, and
 * programs in all languages read them.
 *
 * <p>Fields are null, {@code byte[]}, {@link String}, {@code Tuple} or {@link List}, integers ({@link Long},
 * {@link Integer}, {@link Short}, {@link Byte}, {@link BigInteger} of at most 16 bytes), {@link Float},
 * {@link Double}, {@link Boolean} and {@link UUID}. Integers are read as {@link Long} or, if they are larger,
 * as {@link BigInteger}.
 */
public final class Tuple {
    static final int NULL = 0x00;
    static final int BYTES = 0x01;
    static final int TEXT = 0x02;
    static final int TUPLE = 0x05;
    static final int NEGATIVE_LONG = 0x0B;
    static final int ZERO = 0x14;
    static final int POSITIVE_LONG = 0x1D;
    static final int FLOAT = 0x20;
    static final int DOUBLE = 0x21;
    static final int FALSE = 0x26;
    static final int TRUE = 0x27;
    static final int UUID_CODE = 0x30;
    static final int ESCAPE = 0xFF;
    /** Maximum size of an integer whose code has its size, and of any. */
    static final int SHORT_BYTES_MAX = 8;
    static final int INT_BYTES_MAX = 16;
    static final int DEPTH_MAX = 64;

    private final List<Object> fields;

    private Tuple(List<Object> fields) {
        this.fields = fields;
    }

    /** Makes a tuple of fields. */
    public static Tuple of(Object... fields) {
        List<Object> list = new ArrayList<>(fields.length);
        for (Object field : fields) {
            list.add(normal(field));
        }
        return new Tuple(Collections.unmodifiableList(list));
    }

    /** Makes a tuple of a list of fields. */
    public static Tuple of(List<?> fields) {
        return of(fields.toArray());
    }

    /** Equal integers become equal objects. */
    private static Object normal(Object field) {
        return switch (field) {
            case null -> null;
            case Integer number -> (Object) number.longValue();
            case Short number -> number.longValue();
            case Byte number -> number.longValue();
            case BigInteger number -> number.bitLength() < Long.SIZE ? (Object) number.longValue() : number;
            case List<?> list -> of(list);
            case byte[] bytes -> bytes.clone();
            case Long l -> l;
            case Float f -> f;
            case Double d -> d;
            case Boolean b -> b;
            case UUID u -> u;
            case String s -> s;
            case Tuple t -> t;
            default -> throw new InvalidException("a field of " + field.getClass().getName());
        };
    }

    /** Decodes a key. {@link InvalidException}: it is no encoded tuple. */
    public static Tuple unpack(byte[] key) {
        return new Tuple(Collections.unmodifiableList(new TupleReader(key).all()));
    }

    /** Returns the encoded key. */
    public byte[] pack() {
        ByteArrayOutputStream out = new ByteArrayOutputStream(32);
        for (Object field : fields) {
            write(out, field, 0);
        }
        return out.toByteArray();
    }

    /** Returns the first key behind all keys that begin with these fields: the range from {@link #pack}. */
    public byte[] packEnd() {
        byte[] start = pack();
        byte[] end = Arrays.copyOf(start, start.length + 1);
        end[start.length] = (byte) ESCAPE;
        return end;
    }

    private static void write(ByteArrayOutputStream out, Object field, int depth) {
        switch (field) {
            case null -> {
                out.write(NULL);
                if (depth > 0) {
                    out.write(ESCAPE);
                }
            }
            case byte[] bytes -> escaped(out, BYTES, bytes);
            case String text -> escaped(out, TEXT, Utf8.encode(text));
            case Long number -> integer(out, BigInteger.valueOf(number));
            case BigInteger number -> integer(out, number);
            case Float number -> floats(out, FLOAT, Float.floatToRawIntBits(number), Integer.BYTES);
            case Double number -> floats(out, DOUBLE, Double.doubleToRawLongBits(number), Long.BYTES);
            case Boolean yes -> out.write(yes ? TRUE : FALSE);
            case UUID id -> {
                out.write(UUID_CODE);
                bigEndian(out, id.getMostSignificantBits(), Long.BYTES);
                bigEndian(out, id.getLeastSignificantBits(), Long.BYTES);
            }
            case Tuple tuple -> {
                if (depth >= DEPTH_MAX) {
                    throw new InvalidException("tuples are nested more than " + DEPTH_MAX + " deep");
                }
                out.write(TUPLE);
                tuple.fields.forEach(inner -> write(out, inner, depth + 1));
                out.write(0);
            }
            default -> throw new InvalidException("a field of " + field.getClass().getName());
        }
    }

    private static void escaped(ByteArrayOutputStream out, int code, byte[] bytes) {
        out.write(code);
        for (byte b : bytes) {
            out.write(b);
            if (b == 0) {
                out.write(ESCAPE);
            }
        }
        out.write(0);
    }

    private static void integer(ByteArrayOutputStream out, BigInteger number) {
        boolean isNegative = number.signum() < 0;
        BigInteger magnitude = number.abs();
        int length = (magnitude.bitLength() + 7) / 8;
        if (!fits(number, length)) {
            throw new InvalidException("an integer beyond 128 bits");
        }
        if (length <= SHORT_BYTES_MAX) {
            out.write(isNegative ? ZERO - length : ZERO + length);
        } else {
            out.write(isNegative ? NEGATIVE_LONG : POSITIVE_LONG);
            out.write(isNegative ? ~length : length);
        }
        byte[] bytes = magnitude.toByteArray();
        // The first byte may have the sign only.
        for (int i = bytes.length - length; i < bytes.length; i++) {
            out.write(isNegative ? ~bytes[i] : bytes[i]);
        }
    }

    /** Whether the encoding has an integer whose magnitude has this many bytes. */
    static boolean fits(BigInteger number, int length) {
        return length <= INT_BYTES_MAX && (number.signum() >= 0 || number.bitLength() < INT_BYTES_MAX * 8);
    }

    /** Writes the bits of a float so that their order is that of the numbers. */
    private static void floats(ByteArrayOutputStream out, int code, long bits, int size) {
        long sign = 1L << (size * 8 - 1);
        out.write(code);
        bigEndian(out, (bits & sign) != 0 ? ~bits : bits ^ sign, size);
    }

    private static void bigEndian(ByteArrayOutputStream out, long bits, int size) {
        out.write(ByteBuffer.allocate(Long.BYTES).putLong(bits).array(), Long.BYTES - size, size);
    }

    /** The number of fields. */
    public int size() {
        return fields.size();
    }

    /** Returns a field. */
    public Object get(int at) {
        return fields.get(at);
    }

    /** Returns an integer. */
    public long getLong(int at) {
        return get(at, Long.class);
    }

    /** Returns a text. */
    public String getString(int at) {
        return get(at, String.class);
    }

    /** Returns bytes. */
    public byte[] getBytes(int at) {
        return get(at, byte[].class).clone();
    }

    /** Returns a tuple. */
    public Tuple getTuple(int at) {
        return get(at, Tuple.class);
    }

    private <T> T get(int at, Class<T> type) {
        Object field = fields.get(at);
        if (!type.isInstance(field)) {
            String is = field == null ? "null" : field.getClass().getSimpleName();
            throw new InvalidException("field " + at + " is " + is + ", not " + type.getSimpleName());
        }
        return type.cast(field);
    }

    /** Returns the fields. */
    public List<Object> toList() {
        return fields;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Tuple tuple && Arrays.deepEquals(fields.toArray(), tuple.fields.toArray());
    }

    @Override
    public int hashCode() {
        return Arrays.deepHashCode(fields.toArray());
    }

    @Override
    public String toString() {
        return Arrays.deepToString(fields.toArray());
    }
}
