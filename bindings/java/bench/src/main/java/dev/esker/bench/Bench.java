package dev.esker.bench;

import dev.esker.bench.Store.Opening;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * Speed of Esker beside RocksDB and H2's MVStore.
 *
 * <pre>
 *   java -jar target/esker-bench-0.1.0.jar [ITEMS [ROUNDS [ENGINES]]]
 * </pre>
 *
 * <p>The engines take turns in each row, and another one begins each round. A round uses new directories. The
 * first round warms up and is not counted. The table has the medians of the others.
 */
public final class Bench {
    /** The cache of each engine, and all of Esker's memory. */
    static final long CACHE_BYTES = 256L << 20;

    private static final Map<String, Opening> ENGINES = new LinkedHashMap<>();

    static {
        ENGINES.put("Esker", EskerStore::new);
        ENGINES.put("RocksDB", RocksStore::new);
        ENGINES.put("MVStore", MvStore::new);
    }

    /** Keeps the compiler from dropping reads. */
    private static long visited;

    private final List<String> names;
    private final int items;
    /** Microseconds for each item, by row and engine, of all rounds. */
    private final Map<String, Map<String, List<Double>>> times = new LinkedHashMap<>();

    private Bench(List<String> names, int items) {
        this.names = names;
        this.items = items;
    }

    static void visit(byte[] key, byte[] value) {
        visited += key.length + value.length + value[0];
    }

    public static void main(String[] args) throws Exception {
        int items = args.length > 0 ? Integer.parseInt(args[0]) : 100_000;
        int rounds = args.length > 1 ? Integer.parseInt(args[1]) : 5;
        List<String> names = args.length > 2 ? List.of(args[2].split(",")) : List.copyOf(ENGINES.keySet());
        Bench bench = new Bench(names, items);
        Path base = Files.createTempDirectory("esker-java-bench-");
        try {
            for (int round = 0; round <= rounds; round++) {
                Path directory = Files.createDirectory(base.resolve(Integer.toString(round)));
                bench.round(round, directory);
                delete(directory);
                System.err.println("round " + round + " of " + rounds);
            }
        } finally {
            delete(base);
        }
        bench.print();
    }

    private static void delete(Path directory) throws IOException {
        try (var paths = Files.walk(directory)) {
            for (Path path : paths.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        }
    }

    private void round(int round, Path directory) throws Exception {
        Data data = new Data(items, round);
        List<Store> stores = new ArrayList<>();
        for (String name : names) {
            stores.add(ENGINES.get(name).open(Files.createDirectory(directory.resolve(name))));
        }
        for (Row row : Row.ALL) {
            for (int turn = 0; turn < names.size(); turn++) {
                int at = (turn + round) % names.size();
                Store store = stores.get(at);
                if (row.needs() != null && !store.waits().contains(row.needs())) {
                    continue;
                }
                double took = measure(row, store, data);
                if (round > 0) {
                    times.computeIfAbsent(row.name(), name -> new LinkedHashMap<>())
                            .computeIfAbsent(names.get(at), name -> new ArrayList<>()).add(took);
                }
            }
        }
        for (Store store : stores) {
            store.close();
        }
    }

    private static double measure(Row row, Store store, Data data) throws Exception {
        row.prepare().run(store);
        System.gc();
        long start = System.nanoTime();
        int count = row.work().run(store, data);
        return (System.nanoTime() - start) / 1000.0 / count;
    }

    private static double median(List<Double> of) {
        return of.stream().sorted().toList().get(of.size() / 2);
    }

    private void print() {
        System.out.println("| us for each item | " + String.join(" | ", names) + " |");
        System.out.println("|---|" + "---:|".repeat(names.size()));
        times.forEach((row, of) -> {
            double best = of.values().stream().mapToDouble(Bench::median).min().orElse(0);
            StringBuilder line = new StringBuilder("| " + row + " |");
            for (String name : names) {
                List<Double> all = of.get(name);
                if (all == null) {
                    line.append(" |");
                } else {
                    String mark = median(all) == best ? "**" : "";
                    line.append(" " + mark + digits(median(all)) + mark + " |");
                    System.err.printf("%-34s %-8s %s to %s%n", row, name,
                            digits(Collections.min(all)), digits(Collections.max(all)));
                }
            }
            System.out.println(line);
        });
        System.err.println("bytes visited: " + visited);
    }

    /** Writes a number with three digits. */
    private static String digits(double number) {
        int decimals = number >= 100 ? 0 : number >= 10 ? 1 : 2;
        return String.format(Locale.ROOT, "%." + decimals + "f", number);
    }
}
