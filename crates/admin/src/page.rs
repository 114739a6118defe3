//! The files of the page. The page loads nothing from elsewhere.

/// A file.
#[derive(Debug)]
pub struct File {
    pub path: &'static str,
    pub content_type: &'static str,
    pub content: &'static str,
}

pub const FILES: &[File] = &[
    File { path: "/", content_type: "text/html; charset=utf-8", content: include_str!("page/index.html") },
    File { path: "/icon.svg", content_type: "image/svg+xml", content: include_str!("page/icon.svg") },
    File { path: "/page.css", content_type: "text/css; charset=utf-8", content: include_str!("page/page.css") },
    File { path: "/page.js", content_type: "text/javascript; charset=utf-8", content: include_str!("page/page.js") },
];
