package dev.esker;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.SymbolLookup;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;

/**
 * Finds the shared library of the C API.
 *
 * <p>The places, in order: the system property {@code esker.library} and the environment's
 * {@code ESKER_LIBRARY} (both a path of the file), a resource in the jar, the system's library path.
 */
final class Library {
    private Library() {}

    static SymbolLookup load() {
        String path = System.getProperty("esker.library");
        if (path == null || path.isEmpty()) {
            path = System.getenv("ESKER_LIBRARY");
        }
        if (path != null && !path.isEmpty()) {
            return open(Path.of(path).toAbsolutePath());
        }
        String name = System.mapLibraryName("esker_c");
        try (InputStream resource = Library.class.getResourceAsStream("/" + folder() + "/" + name)) {
            if (resource != null) {
                return open(extracted(resource, name));
            }
        } catch (IOException e) {
            throw new UncheckedIOException("the library of Esker cannot be extracted from the jar", e);
        }
        return fromSystem(name);
    }

    /** The folder of the jar with the library for this system, such as "native/linux-amd64". */
    private static String folder() {
        String system = System.getProperty("os.name").toLowerCase(Locale.ROOT).split(" ")[0];
        return "native/" + system + "-" + System.getProperty("os.arch");
    }

    private static Path extracted(InputStream resource, String name) throws IOException {
        Path directory = Files.createTempDirectory("esker");
        Path file = directory.resolve(name);
        Files.copy(resource, file, StandardCopyOption.REPLACE_EXISTING);
        file.toFile().deleteOnExit();
        directory.toFile().deleteOnExit();
        return file;
    }

    private static SymbolLookup open(Path file) {
        try {
            return SymbolLookup.libraryLookup(file, Arena.global());
        } catch (IllegalArgumentException e) {
            throw missing(file.toString(), e);
        }
    }

    private static SymbolLookup fromSystem(String name) {
        for (String folder : System.getProperty("java.library.path", "").split(java.io.File.pathSeparator)) {
            Path file = Path.of(folder.isEmpty() ? "." : folder, name).toAbsolutePath();
            if (Files.isRegularFile(file)) {
                return open(file);
            }
        }
        try {
            return SymbolLookup.libraryLookup(name, Arena.global());
        } catch (IllegalArgumentException e) {
            throw missing(name, e);
        }
    }

    private static UnsatisfiedLinkError missing(String name, Exception cause) {
        UnsatisfiedLinkError error = new UnsatisfiedLinkError(
                "the library of Esker cannot be loaded: " + name
                        + ". Name its file with -Desker.library=... or in ESKER_LIBRARY.");
        error.initCause(cause);
        return error;
    }
}
