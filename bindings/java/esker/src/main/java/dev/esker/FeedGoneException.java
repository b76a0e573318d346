package dev.esker;

/** The change feed no longer has the commits that were asked for. */
public final class FeedGoneException extends EskerException {
    private static final long serialVersionUID = 1;

    FeedGoneException(Failure failure) {
        super(failure);
    }
}
