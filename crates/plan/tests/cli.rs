//! The commands, with a world of their own: exit status and where text goes.
#![cfg(feature = "cli")]

use annulus_plan::cli::{USAGE, World, run};

#[derive(Default)]
struct Paper {
    printed: String,
    complaints: String,
}

const GOOD: &str = r#"{"id": "a", "scenario": {"cache": {"kind": "full"}, "ops": [{"op": "empty", "rows": 1}]}}"#;

impl World for Paper {
    fn read(&mut self, path: &str) -> Result<String, String> {
        match path {
            "good" => Ok(GOOD.to_owned()),
            "-" => Ok(format!("{GOOD}\nnonsense\n")),
            _ => Err("no such file".to_owned()),
        }
    }

    fn print(&mut self, text: &str) -> Result<(), String> {
        self.printed += text;
        Ok(())
    }

    fn complain(&mut self, text: &str) {
        self.complaints += text;
    }
}

#[test]
fn the_exit_status_says_what_happened() {
    let status = |args: &[&str]| {
        let mut paper = Paper::default();
        (run(args, &mut paper), paper.printed.lines().count(), paper.complaints)
    };
    assert_eq!(status(&["replay", "good"]), (0, 1, String::new()));
    assert_eq!(status(&["replay", "-"]), (1, 2, String::new()));
    assert_eq!(status(&["replay", "missing"]), (2, 0, "missing: no such file".to_owned()));
    assert_eq!(status(&["dance", "good"]), (2, 0, USAGE.to_owned()));
    assert_eq!(status(&["replay"]).0, 2);
    let (code, printed, _) = status(&["explain", "good"]);
    assert!(code == 0 && printed > 2);
}
