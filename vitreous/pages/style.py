"""How our pages look: light or dark as the reader likes it, down to a phone's width."""

STYLE = """
:root{color-scheme:light dark;--ink:#1d2733;--soft:#5d6b7a;--line:#d7dee6;--paper:#fff;--a:#1f6feb;
--b:#c2410c;--c:#15803d}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9aa7b4;--line:#2f3a46;--paper:#10161d;
--a:#6cb0ff;--b:#ffa26b;--c:#5fd38a}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}main{max-width:64rem;margin:0 auto;padding:1.5rem 1rem 4rem}
h1{font-size:1.6rem;margin:.2rem 0}h2{font-size:1.15rem;margin:2.2rem 0 .6rem}p{margin:.4rem 0}
.soft{color:var(--soft)}.big{display:flex;flex-wrap:wrap;gap:1rem;margin:1rem 0}
.big div{border:1px solid var(--line);border-radius:.5rem;padding:.6rem 1rem;min-width:8rem}
.big b{display:block;font-size:1.5rem}.charts{display:grid;gap:1rem;
grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr))}
svg{width:100%;height:auto;border:1px solid var(--line);border-radius:.5rem}
svg text{fill:var(--soft);font-size:11px}svg .title{fill:var(--ink);font-size:13px}
svg .end{text-anchor:end;dominant-baseline:middle}svg .mid{text-anchor:middle}
svg .grid{stroke:var(--line)}svg .line{fill:none;stroke-width:2}
svg .l0{stroke:var(--a)}svg .l1{stroke:var(--b)}svg .l2{stroke:var(--c)}
svg .dot{fill:var(--paper);stroke-width:2}
.story th{white-space:nowrap;vertical-align:top;padding-left:0}.story td{overflow-wrap:anywhere}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
.wide{overflow-x:auto}td,th{padding:.25rem .6rem;border-bottom:1px solid var(--line);
text-align:left;font-weight:normal}th{color:var(--soft)}.num{text-align:right}
.confusion td,.confusion th{padding:.2rem .4rem;text-align:center}
.cell{background:color-mix(in srgb,var(--a) calc(var(--share)*.6),transparent)}
.tilt span{writing-mode:vertical-rl;transform:rotate(180deg)}
.shots{display:grid;gap:.8rem;grid-template-columns:repeat(auto-fill,minmax(9rem,1fr))}
figure{margin:0}figcaption{font-size:.82rem;line-height:1.35;overflow-wrap:anywhere}
img{border-radius:.3rem;image-rendering:pixelated;max-width:100%;background:var(--line)}
.swatch{display:inline-block;width:1.1em;height:.8em;margin-right:.45em;border-radius:.15em;
border:1px solid color-mix(in srgb,var(--ink) 40%,transparent)}
.hatched{background:repeating-linear-gradient(135deg,#6e6e6e 0 3px,#bebebe 3px 6px)}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem}.legend span{white-space:nowrap}
.trios{display:grid;gap:1.2rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,28rem),1fr))}
.trios div{display:grid;grid-template-columns:repeat(3,1fr);gap:.3rem}.trios img{width:100%}
.pairs{display:grid;gap:1.2rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,28rem),1fr))}
.pairs div{display:grid;grid-template-columns:repeat(2,1fr);gap:.3rem}.pairs img{width:100%}
.fine{image-rendering:auto}
.inside{margin:1rem 0}.inside img{image-rendering:auto;background:#fff}
pre{background:color-mix(in srgb,var(--line) 40%,transparent);padding:.7rem 1rem;overflow-x:auto;
border-radius:.4rem}
"""
