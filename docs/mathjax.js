MathJax.Hub.Config({ showMathMenu: false, messageStyle: "none", SVG: { scale: 92, linebreaks: { automatic: false } } });
