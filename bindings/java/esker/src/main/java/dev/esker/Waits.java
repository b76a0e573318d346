package dev.esker;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.function.IntSupplier;

/**
 * Calls of the library that may wait: for the disk, or for a transaction of another thread.
 *
 * <p>A virtual thread in a native call keeps its carrier. If calls that wait for a transaction kept all
 * carriers, the thread of that transaction could not go on. So a virtual thread has a platform thread make
 * the call, and gives up its carrier meanwhile. Platform threads make the call themselves.
 */
final class Waits {
    /** Most platform threads for calls that no other thread waits for. */
    private static final int UNAWAITED_MAX = 256;

    private static final Semaphore UNAWAITED = new Semaphore(UNAWAITED_MAX);
    private static final ExecutorService THREADS =
            Executors.newCachedThreadPool(Thread.ofPlatform().daemon().name("esker-wait-", 0).factory());

    private Waits() {}

    /** Makes a call that no other thread waits for, such as a write outside of transactions. */
    static int call(IntSupplier call) {
        if (!Thread.currentThread().isVirtual()) {
            return call.getAsInt();
        }
        UNAWAITED.acquireUninterruptibly();
        try {
            return elsewhere(call);
        } finally {
            UNAWAITED.release();
        }
    }

    /** Makes a call that others may wait for: it must begin at once, however many calls wait. */
    static int callNow(IntSupplier call) {
        return Thread.currentThread().isVirtual() ? elsewhere(call) : call.getAsInt();
    }

    private static int elsewhere(IntSupplier call) {
        return CompletableFuture.supplyAsync(call::getAsInt, THREADS).join();
    }
}
