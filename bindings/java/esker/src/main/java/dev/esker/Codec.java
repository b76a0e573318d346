package dev.esker;

import java.util.Arrays;
import java.util.Comparator;
import java.util.function.Function;

/**
 * Turns objects into bytes and back, for {@link Keyspace#asMap(Codec, Codec)}.
 *
 * <p>Keys are in the order of their bytes. Equal objects must have equal bytes.
 *
 * @param <T> the type of the objects
 */
public interface Codec<T> {
    /** Bytes as they are. */
    Codec<byte[]> BYTES = of(bytes -> bytes, bytes -> bytes);

    /** Text as UTF-8. Its order is that of the code points. */
    Codec<String> UTF8 = of(Utf8::encode, Utf8::decode);

    /** Numbers as a tuple of one field: their order is that of the numbers. */
    Codec<Long> LONG = of(number -> Tuple.of(number).pack(), bytes -> Tuple.unpack(bytes).getLong(0));

    /** Tuples: their order is that of the fields. */
    Codec<Tuple> TUPLE = of(Tuple::pack, Tuple::unpack);

    /** Returns the bytes of an object. */
    byte[] encode(T object);

    /** Returns the object of bytes. */
    T decode(byte[] bytes);

    /** The order of the bytes. */
    default Comparator<T> comparator() {
        return (a, b) -> Arrays.compareUnsigned(encode(a), encode(b));
    }

    /** Makes a codec of two functions. */
    static <T> Codec<T> of(Function<T, byte[]> encode, Function<byte[], T> decode) {
        return new Codec<>() {
            @Override
            public byte[] encode(T object) {
                return encode.apply(object);
            }

            @Override
            public T decode(byte[] bytes) {
                return decode.apply(bytes);
            }
        };
    }
}
