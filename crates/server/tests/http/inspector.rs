//! The page at `/inspect`: all of it where it was built, a sentence that says how to build it where it was not.

use crate::support::{Server, say};

#[test]
fn the_inspector_is_a_page_with_all_its_files_or_says_how_to_build_it() {
    let server = Server::start(say(&[]));
    let moved = server.get("/inspect");
    assert_eq!((moved.status, moved.header("location")), (308, Some("/inspect/")));

    let page = server.get("/inspect/");
    if page.status == 404 {
        assert!(page.text().contains("make web"), "{}", page.text());
        return;
    }
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!(page.header("cache-control"), Some("no-cache"));
    let files: Vec<&str> = page.text().split('"').filter(|part| part.starts_with("./assets/")).collect();
    assert!(!files.is_empty(), "{}", page.text());
    for file in files {
        let asset = server.get(&file.replacen('.', "/inspect", 1));
        let content = asset.header("content-type").unwrap_or_default();
        assert!(asset.status == 200 && content.starts_with("text/"), "{file}: {} {content}", asset.status);
        assert!(asset.header("cache-control").unwrap_or_default().contains("immutable"));
    }
}

#[test]
fn what_the_page_does_not_have_is_not_found() {
    let server = Server::start(say(&[]));
    for path in ["/inspect/assets/none.js", "/inspect/../Cargo.toml", "/inspect/%2e%2e/%2e%2e/Cargo.toml"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
}
