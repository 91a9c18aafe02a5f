//! Floor 4: tools of other servers, by the Model Context Protocol.
