//! Floor 3: HTTP and server-sent events, with deadlines and cancellation.
