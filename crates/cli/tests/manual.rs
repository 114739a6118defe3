//! Completions for shells, and manual pages.

use crate::common::run;

#[test]
fn shells_and_manuals_know_the_command_line() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = run(&format!("completions {shell}")).expect(0).out;
        assert!(script.contains("memory-node"), "{shell}");
    }
    assert!(run("man").expect(0).out.contains("forebay\\-serve(1)"));
    let folder = crate::common::fresh_path(".man");
    run(&format!("man --folder={}", folder.join("new").display())).expect(0);
    run(&format!("man --folder={}", folder.display())).expect(0);
    let file = folder.join("forebay.1");
    let refused = run(&format!("man --folder={}", file.display())).expect(1);
    assert!(refused.error.contains(&file.display().to_string()), "{refused:?}");
    assert!(std::fs::read_to_string(folder.join("forebay-serve.1")).unwrap().contains("\\-\\-admin"));
    std::fs::remove_dir_all(&*folder).unwrap();
}
