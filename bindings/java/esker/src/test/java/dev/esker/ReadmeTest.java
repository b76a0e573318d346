package dev.esker;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The example of README.md is compiled and runs. */
class ReadmeTest {
    private static final String PROGRAM = """
            import dev.esker.*;
            import java.lang.foreign.MemorySegment;
            import java.time.Duration;

            public class Example {
                public static void run() throws Exception {
                    %s
                }
            }
            """;

    @TempDir
    Path directory;

    @Test
    void theExampleRuns() throws Exception {
        String readme = Files.readString(Path.of("../README.md"));
        String example = readme.split("```java\n", 2)[1].split("```", 2)[0];
        Path database = directory.resolve("db");
        Path source = directory.resolve("Example.java");
        Files.writeString(source, PROGRAM.formatted(example.replace("\"data\"", '"' + database.toString() + '"')));
        int code = ToolProvider.getSystemJavaCompiler().run(
                null, null, null, "-cp", System.getProperty("java.class.path"), source.toString());
        assertEquals(0, code);
        PrintStream out = System.out;
        var printed = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        try (var classes = new URLClassLoader(new URL[] {directory.toUri().toURL()})) {
            classes.loadClass("Example").getMethod("run").invoke(null);
        } finally {
            System.setOut(out);
        }
        assertEquals("bob=2\nann=1\n", printed.toString(StandardCharsets.UTF_8));
        try (var db = Esker.open(database)) {
            assertEquals("1!", new String(db.keyspace("users").get("ann".getBytes()), StandardCharsets.UTF_8));
        }
    }
}
