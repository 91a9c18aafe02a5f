//! Images in requests.

use super::fixtures::{self, EMPTY_FRAME};

#[test]
fn a_model_without_images_gets_them_as_text() {
    for (name, wire) in fixtures::wires() {
        let items = fixtures::items_with_images();
        let request = fixtures::encode_request(&*wire, &EMPTY_FRAME, &items, None);
        for shown in ["[image a.png, 8x6, not shown]", "[image b.png, 8x6, not shown]"] {
            assert!(request.contains(shown), "{name}: {request}");
        }
        assert!(!request.contains("AAAA") && !request.contains("BBBB"), "{name}: {request}");
    }
}
