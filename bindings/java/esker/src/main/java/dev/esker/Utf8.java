package dev.esker;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;

/** UTF-8 that refuses what it cannot express, instead of replacing it. */
final class Utf8 {
    private Utf8() {}

    static byte[] encode(String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        // A lone surrogate became a question mark.
        if (text.chars().anyMatch(unit -> Character.isSurrogate((char) unit))) {
            try {
                StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
            } catch (CharacterCodingException e) {
                throw new InvalidException("the text has a lone surrogate: it is not Unicode");
            }
        }
        return bytes;
    }

    static String decode(byte[] bytes) {
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
        } catch (CharacterCodingException e) {
            throw new InvalidException("the bytes are no UTF-8");
        }
    }
}
