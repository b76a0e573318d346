package dev.esker;

import java.io.ByteArrayOutputStream;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.UUID;

/** Reads the fields of an encoded tuple. Bytes are not trusted: every length and depth is checked. */
final class TupleReader {
    private final byte[] bytes;
    private int at;

    TupleReader(byte[] bytes) {
        this.bytes = bytes;
    }

    List<Object> all() {
        List<Object> fields = new ArrayList<>();
        while (at < bytes.length) {
            fields.add(field(0));
        }
        return fields;
    }

    private static InvalidException invalid(String what) {
        return new InvalidException("this is no tuple: " + what);
    }

    private int next() {
        if (at >= bytes.length) {
            throw invalid("it ends early");
        }
        return bytes[at++] & 0xFF;
    }

    private byte[] take(int length) {
        if (length > bytes.length - at) {
            throw invalid("it ends early");
        }
        at += length;
        return Arrays.copyOfRange(bytes, at - length, at);
    }

    private boolean isNext(int value) {
        return at < bytes.length && (bytes[at] & 0xFF) == value;
    }

    private Object field(int depth) {
        int code = next();
        return switch (code) {
            case Tuple.NULL -> nothing(depth);
            case Tuple.BYTES -> escaped();
            case Tuple.TEXT -> Utf8.decode(escaped());
            case Tuple.TUPLE -> tuple(depth);
            case Tuple.FLOAT -> Float.intBitsToFloat((int) floats(Integer.BYTES));
            case Tuple.DOUBLE -> Double.longBitsToDouble(floats(Long.BYTES));
            case Tuple.FALSE -> false;
            case Tuple.TRUE -> true;
            case Tuple.UUID_CODE -> {
                ByteBuffer id = ByteBuffer.wrap(take(2 * Long.BYTES));
                yield new UUID(id.getLong(), id.getLong());
            }
            default -> {
                if (code < Tuple.NEGATIVE_LONG || code > Tuple.POSITIVE_LONG) {
                    throw invalid("no field has the code " + code);
                }
                yield integer(code);
            }
        };
    }

    private Object nothing(int depth) {
        // Within a tuple a zero byte alone is the end, which `tuple` has read.
        if (depth > 0 && next() != Tuple.ESCAPE) {
            throw invalid("a null without its end");
        }
        return null;
    }

    private byte[] escaped() {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        while (true) {
            int value = next();
            if (value == 0 && !isNext(Tuple.ESCAPE)) {
                return out.toByteArray();
            }
            out.write(value);
            if (value == 0) {
                at++;
            }
        }
    }

    private Tuple tuple(int depth) {
        if (depth >= Tuple.DEPTH_MAX) {
            throw invalid("tuples are nested too deep");
        }
        List<Object> fields = new ArrayList<>();
        while (true) {
            if (isNext(0) && (at + 1 == bytes.length || (bytes[at + 1] & 0xFF) != Tuple.ESCAPE)) {
                at++;
                return Tuple.of(Collections.unmodifiableList(fields));
            }
            fields.add(field(depth + 1));
        }
    }

    private Object integer(int code) {
        boolean isNegative = code < Tuple.ZERO;
        int length = Math.abs(code - Tuple.ZERO);
        if (length > Tuple.SHORT_BYTES_MAX) {
            length = isNegative ? ~next() & 0xFF : next();
            if (length <= Tuple.SHORT_BYTES_MAX) {
                throw invalid("an integer that is not in its shortest form");
            }
        }
        if (length > Tuple.INT_BYTES_MAX) {
            throw invalid("an integer of " + length + " bytes");
        }
        byte[] stored = take(length);
        if (isNegative) {
            for (int i = 0; i < length; i++) {
                stored[i] = (byte) ~stored[i];
            }
        }
        if (length > 0 && stored[0] == 0) {
            throw invalid("an integer that is not in its shortest form");
        }
        BigInteger number = new BigInteger(isNegative ? -1 : length == 0 ? 0 : 1, stored);
        if (!Tuple.fits(number, length)) {
            throw invalid("an integer beyond 128 bits");
        }
        return number.bitLength() < Long.SIZE ? (Object) number.longValue() : number;
    }

    private long floats(int size) {
        long sign = 1L << (size * 8 - 1);
        long sorted = 0;
        for (byte b : take(size)) {
            sorted = sorted << 8 | b & 0xFF;
        }
        return (sorted & sign) == 0 ? ~sorted : sorted ^ sign;
    }
}
