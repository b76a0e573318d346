package dev.esker;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.math.BigInteger;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import java.util.UUID;
import org.junit.jupiter.api.Test;

/** The examples of docs/formats/tuple.md, and what readers must refuse. */
class TupleTest {
    private static final HexFormat HEX = HexFormat.of();

    private static void is(String hex, Object... fields) {
        byte[] bytes = HEX.parseHex(hex.replace(" ", ""));
        Tuple tuple = Tuple.of(fields);
        assertEquals(HEX.formatHex(bytes), HEX.formatHex(tuple.pack()));
        assertEquals(tuple, Tuple.unpack(bytes));
    }

    @Test
    void theExamplesOfTheFormat() {
        BigInteger large = BigInteger.TWO.pow(64);
        is("01 66 6F 6F 00 FF 62 61 72 00", EskerTest.b("foo\0bar"));
        is("02 46 C3 94 4F 00 FF 62 61 72 00", "F\u00d4O\0bar");
        is("05 01 66 6F 6F 00 FF 62 61 72 00 00 FF 05 00 00",
                Tuple.of(EskerTest.b("foo\0bar"), null, Tuple.of()));
        is("11 AB 4B 93", -5551212);
        is("20 3D D7 FF FF", -42f);
        is("15 07 02 61 6E 6E 00", 7, "ann");
        is("15 FF 16 01 00 13 00 12 FE FF", 255, 256, -255, -256);
        is("1D 09 01 00 00 00 00 00 00 00 00", large);
        is("0B F6 FE FF FF FF FF FF FF FF FF", large.negate());
        is("00 26 27 14 30 00112233445566778899aabbccddeeff", null, false, true, 0L,
                UUID.fromString("00112233-4455-6677-8899-aabbccddeeff"));
    }

    @Test
    void theOrderOfBytesIsThatOfNumbers() {
        long[] numbers = new Random(1).longs(2_000).map(n -> n >> (n & 63)).sorted().toArray();
        for (int i = 1; i < numbers.length; i++) {
            byte[] a = Tuple.of(numbers[i - 1]).pack();
            byte[] b = Tuple.of(numbers[i]).pack();
            assertTrue(numbers[i - 1] == numbers[i] || Arrays.compareUnsigned(a, b) < 0);
            byte[] x = Tuple.of((double) numbers[i - 1]).pack();
            assertTrue(Arrays.compareUnsigned(x, Tuple.of((double) numbers[i]).pack()) <= 0);
            assertEquals(numbers[i], Tuple.unpack(b).getLong(0));
        }
        byte[] end = Tuple.of("ann").packEnd();
        assertTrue(Arrays.compareUnsigned(Tuple.of("ann", 7).pack(), end) < 0);
        assertTrue(Arrays.compareUnsigned(Tuple.of("ann\0").pack(), end) > 0);
    }

    @Test
    void otherBytesAreRefused() {
        for (String hex : List.of("01", "0161", "15", "1500", "0500ff", "05", "FF", "21 00", "30 00",
                "1D 08 01 00 00 00 00 00 00 00", "02 FF 00", "32", "1D 11" + "01".repeat(17), "13FF")) {
            byte[] bytes = HEX.parseHex(hex.replace(" ", ""));
            assertThrows(InvalidException.class, () -> Tuple.unpack(bytes), hex);
        }
        byte[] deep = new byte[100_000];
        Arrays.fill(deep, (byte) 5);
        assertThrows(InvalidException.class, () -> Tuple.unpack(deep));
        assertThrows(InvalidException.class, () -> Tuple.of(new Object()));
        assertThrows(InvalidException.class, () -> Tuple.of("\ud800").pack());
        assertThrows(InvalidException.class, () -> Tuple.of(BigInteger.TWO.pow(128)).pack());
    }

    @Test
    void randomBytesAreATupleOrRefused() {
        Random random = new Random(2);
        byte[] codes = HEX.parseHex("00010205131415162021260bff6107");
        int tuples = 0;
        for (int i = 0; i < 200_000; i++) {
            byte[] bytes = new byte[random.nextInt(12)];
            for (int at = 0; at < bytes.length; at++) {
                bytes[at] = codes[random.nextInt(codes.length)];
            }
            try {
                Tuple tuple = Tuple.unpack(bytes);
                assertArrayEquals(bytes, tuple.pack());
                tuples++;
            } catch (InvalidException e) {
                continue;
            }
        }
        assertTrue(tuples > 1_000, "only " + tuples);
    }
}
