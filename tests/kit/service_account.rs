//! The file of a Google service account, with a key that was generated for these tests.

use serde_json::{Value, json};

/// The name of the account.
pub(crate) const EMAIL: &str = "tester@my-project.iam.gserviceaccount.com";

/// Returns the file of an account whose tokens are from this address.
pub(crate) fn account_file(token_uri: &str) -> Value {
    json!({
        "type": "service_account",
        "project_id": "my-project",
        "private_key_id": "key-1",
        "private_key": PRIVATE_KEY,
        "client_email": EMAIL,
        "token_uri": token_uri,
    })
}

/// The key, in PEM. It belongs to no account.
pub(crate) const PRIVATE_KEY: &str = "\
-----BEGIN PRIVATE KEY-----\n\
MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQCcapz0BwskragR\n\
MhcOTKfd99uvG617LdZNOVe/UoWkKmu76hNJeEbqi2VcG5E5qjtnQgNJnbQ96FuS\n\
iBQhKbOhhZrkQ2UjJTlaWpYP1vpzBAjip9Dx5T9H23DgLF5zjxghs12siOAHJsI5\n\
eOmhcDv3aWirJVQQ9pftYHVKxCp118fhAoqg4ojTMkVFoOAkpxiDhAyxJLo7AwiZ\n\
bjjPQ6kzfrkQHOX5lBfFiFIWWhzOQ3kDe8Zaf8+0aJXQYyWBDNTwW+ncKqnXN5yU\n\
fZpfFiWaWo3bN1fh0ZC7MblyX498FNs2HVfMsOQ/h+VmlePHPGCSx7cE+8GYVomj\n\
rv5895BJAgMBAAECggEAR216GgfDY273wk5879c6iyb+B4Ncn9UJOT+X3fMJuzNx\n\
+iCEyTanL8ETOtIN6ebedKNVC/97yQ98DbiddJ1t/bMczeMm4rtDawrV3wrdWLt9\n\
cT+QL35v/NjtPTmVsjCkpPMbMkhZAXsGE6evDL1LbQqSNSF5N7vcGhbDyS42c5Qs\n\
vPwapmFLUVKCJGbZw6bRgrAkd5g9eBJ/RzRK8U/oNj4MzwO4SHBotuxEECGigplq\n\
YOjzCXkSE/CC9A9n3TmGX6uPcpF7Mx7cgg7SKB8zEiEfmMIRLxHAYjb5926xzYFK\n\
wrZ+DLoim4RIx4wUugJJ8ybYZL7XiecyEx05Ma1hPwKBgQDPk5/yuskBCEKUa3S0\n\
q+blE1i5biCc10ZWLTA47XotBW+bOXo7w6ZJKIOX7JAFc0LcW4Igb108KVq/2KVy\n\
h89hdaYa9KrpT/KE+TFLyMRm1lwmbhmGcRWFJuEG/dxbwF9OtON7xhCRu8z6RVpo\n\
CTMQp08GeOj4J4ICG5Dk15unGwKBgQDA57n1YryBAiZMxoHG4X5unEW66bTJ53Oz\n\
4BJFLDz1rOq/rxXx1hV84IJ+GifAifOhpQaJAbIBVFicj6pm5KWwee2VZzYAXJ59\n\
ML8fDH1nNmkVVrdmybFGsS15c7cyEnIrw2KCmJ2q759sYd0Dzkwi7R6uApdlroyz\n\
ncynpK2oawKBgQC4U0rxbFQZipA048bauNtsB+X9o4FqRO+8jpwHsTmQyQb2O/AD\n\
KhV7WXKhcfviGxwAOXIwAzQzvDVNrsAcF+VbkfFSdnlefRPKaM4RkdJ1z1w88//O\n\
lpSZjJC+eKc5AnafmZl3y8Xi43V9uCAzyheCbk+KW8vksJCN9pSP4bXiiQKBgBMT\n\
l2c14XBclw8GnnTdfdRQbfDjBbblxaJnKUdf7ZNaC0jzdpcY1b0osp7n1UCMI+S7\n\
Xh8UZNcO0UiCSJauS9hc5mrc7xEwF5hHxs66PHiFf/TVQ4PNtFNKWDXnhJlWC6Za\n\
RxalIwpxcfGU5/dlYlAd5OfOZ8xta4qjs0Zs2aOLAoGAIxc+ZJf0siPLA7unDsDC\n\
HbkqZCzXLEBdLce2RZCJBFjhPIpmvYOm3YLur9Liuu0I+sVGZhqwPz7bpOx5BgtM\n\
V/4SJu0SWTsszX9Mi9xnu5zwooo637L3UpPIV1l1Ae++kxh7TQgBQvX9kZ2PE/9X\n\
5U1tziZ8Jq2njiBd+GtWipA=\n\
-----END PRIVATE KEY-----\n\
";
