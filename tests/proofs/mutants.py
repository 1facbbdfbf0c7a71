"""Every test of the checker earns its place: without it, something bad is accepted.

    mutants.py HEADROOM OCAMLFIND FOLDER_OF_DRIVER_SOURCES EXTRACTED_FOLDER HEADS.safetensors

A mutant is the checker's program with one test taken out, of the driver (text to text) or of the
extracted checker (one conjunct of a function becomes true). Two kinds of bad input:
  * a certificate or a tensor file that was tampered with (those of checker.py, named);
  * a driver that lies about a number which the extracted checker does not trust (Hints): the checker
    must refuse an honest certificate with it, until the test of that number is taken out.
Each bad input must be refused by the whole checker and accepted by the mutant.
"""

import concurrent.futures
import copy
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import checker

SOURCES = ("z_.ml int63.ml checker.mli checker.ml json.ml sha256.ml exact.ml tensors.ml model.ml certificate.ml "
           "hints.ml main.ml").split()

# what is taken out, file, text, its replacement, tampered certificate that gets through
DRIVER = [
    ("the schema", "certificate.ml", 'if schema <> "headroom-certificate/1" then', "if false then", "schema"),
    ("the kernel's digest", "certificate.ml", "if found <> digest then rejected \"kernel", "if false then rejected \"kernel", "kernel.sha256"),
    ("the policy", "certificate.ml", 'if policy <> "clis" then', "if false then", "policy fixed-m"),
    ("the verdict", "certificate.ml", 'if verdict <> "certified" then', "if false then", "verdict refuted"),
    ("modifiers", "certificate.ml", 'if Json.has "modifiers" head then', "if false then", "modifiers {'softcap': '0x1p+4'}"),
    ("the theorem that is named", "certificate.ml", "if theorem <> expected then", "if false then", "another theorem"),
    ("the path", "certificate.ml", 'if path <> "clis" then', "if false then", "path online"),
    ("casts", "certificate.ml", 'if Json.member "head" "cast" head <> Json.Null then', "if false then", "cast"),
    ("SAFE and ACCURATE", "certificate.ml", 'if Json.text "" key v <> "holds" then', "if false then", "accurate"),
    ("the status", "certificate.ml", '| s -> rejected "status', '| _ -> () | exception Exit -> let s = "" in rejected "status', "status proved"),
    ("the gate's answer", "certificate.ml", 'if Json.text "gate" "accepts" gate <> "yes" then', "if false then", "accepts"),
    ("the gate's stabilizer", "certificate.ml", 'if Json.text "gate" "stabilizer" gate <> "clis" then', "if false then", "stabilizer"),
    ("the id", "certificate.ml", "if n <= k || String.sub id (n - k) k <> tail then", "if false then", "id"),
    ("the binding claim", "certificate.ml", "if not (List.exists", "if false && not (List.exists", "binding"),
    ("claims that are left out", "certificate.ml", "if not (Hashtbl.mem seen id) then", "if false then", "product.flush: left out"),
    ("outcomes", "certificate.ml", 'if (stated = "holds") <> holds then', "if false then", "lse.range: outcome"),
    ("required claims", "certificate.ml", "if must && not required then", "if false then", "product.flush: not required"),
    ("the order of an enclosure's ends", "certificate.ml", "if not (le lo hi) then", "if false then", "score.error: value reversed"),
    ("margins", "certificate.ml", "| Exact l, Exact h, Exact m when Q.gt m (Q.sub l h) -> rejected", "| Exact l, Exact h, Exact m when false -> rejected", "score.range: margin an ulp up"),
    ("hexadecimal floats", "certificate.ml", "(try Exact (Exact.hexadecimal s) with Exact.Bad e -> rejected \"%s: %s\" path e)",
     "(try Exact (Exact.hexadecimal s) with Exact.Bad e -> Exact Q.zero)", "score.error: value decimal"),
    ("the limit of score.range", "certificate.ml", 'if id = "score.range" then limited Q.zero;', "", "score.range: another limit"),
    ("limits within FP32", "certificate.ml", "if List.mem id ranges &&", "if false &&", "l.range: a limit beyond FP32"),
    ("the terms of a sum", "certificate.ml", 'if id = "sum.absorption" then', 'if false then', "sum.absorption: fewer terms"),
    ("values that are not negative", "certificate.ml", 'if unit <> "log2" && not', 'if false && not', "mass.lost: less than nothing"),
    ("the largest exponent", "main.ml", "if not (Certificate.le (Certificate.Exact reached) c.exponent_upper) then", "if false then",
     "exponent.upper: a value that rows exceed"),
    ("max_error", "main.ml", "Some most when Q.gt bound most ->", "Some most when false ->", "max_error with its claim"),
    ("the digests of tensors", "main.ml", "if found <> digest then", "if false then", "digest of v"),
    ("the length", "main.ml", "if c.length > c.keys then", "if false then", "length = 100000000000000"),
    ("most_visible", "main.ml", "if !most <> c.most_visible then", "if false then", "most_visible, one less"),
    ("v_magnitude", "main.ml", "if not (Q.equal magnitude c.v_magnitude) then", "if false then", "v_magnitude an ulp up"),
    ("C is whole", "main.ml", "| _ -> rejected \"gate.C: expected an integer\" in", "| _ -> Z_.fdiv (Q.num c.cap) (Q.den c.cap) in", "C - 1/2"),
    ("the limit of the lost mass", "main.ml", "if not (lost_within kernel h (Q.num c.eps) (Q.den c.eps)) then", "if false then", "eps = 2^-400 everywhere"),
    ("duplicate keys", "json.ml", "if List.mem_assoc key seen then", "if false then", "a duplicate key"),
    ("the end of the text", "json.ml", 'if !at <> n then fail "the end"', "()", "something after the end"),
    ("nesting", "json.ml", "if depth > depth_limit then", "if false then", "deep nesting inside"),
    ("unknown keys of kernels", "model.ml", "if not (List.mem key known) then", "if false then", "kernel: an unknown section"),
    ("complete kernels", "model.ml", 'only "complete" [ "true" ];', "", "kernel: 'complete = false'"),
    ("centred keys", "model.ml", 'only "centring.keys" [ "none" ];', "", "kernel: 'keys = \"mean\"'"),
    ("folded scales", "model.ml", 'only "scale.scale" [ "score" ];', "", "kernel: 'scale = \"query\"'"),
    ("mu rounded up", "model.ml", 'only "stabilizer.round_up" [ "true" ];', "", "kernel: 'round_up = false'"),
    ("padding", "model.ml", 'only "tiles.padding" [ "sliced"; "masked" ];', "", "kernel: 'padding = \"zero-keys\"'"),
    ("P's format", "model.ml", 'only "p.format" [ "bf16"; "fp32"; "tf32" ];', "", "kernel: 'format = \"e4m3fn\"'"),
    ("duplicate keys of kernels", "model.ml", "if Hashtbl.mem table key then", "if false then", "kernel: 'fused = true\\nfused = true'"),
    ("subnormal inputs read as zero", "model.ml", "if daz section && not (flag key) then", "if false then", "kernel: denormals_are_zero"),
    ("matrix units that flush", "model.ml", 'if flag (section ^ ".flush_to_zero") then', "if false then", "kernel: a matrix unit that flushes"),
]

# what is taken out of the extracted checker: function, start of the conjunct; certificate that gets through
EXTRACTED = [
    ("exponents at most C", [("row_ok", "(Z_.leq top (Z_.add (row_b_lo")], "kappa * 0.9999"),
    ("l within the reciprocal's range", [("head_okb", "(at_most (Z_.mul n0 wS) lS k.k_l_max")], "C + 1"),
    ("the output's range", [("head_okb", "(at_most (Z_.mul n0 wS) lS k.k_l_max"),
                            ("head_okb", "(below (Z_.mul n0 wP) (Z_.add lP h.n_G)"),
                            ("head_okb", "(below (Z_.mul n0 wS) lS")], "C + 5"),
]

# lies of the driver, and the tests that find them
LIES = [
    ("max ||k||^2", [("constants with c_K2 = key2 }", "constants with c_K2 = Z_.shift_right key2 1 }")],
     [("key_fast", "(Z_.leq (norm2 l) h.n_constants.c_K2)")]),
    ("the unit of V", [("n_ve = zi ve;", "n_ve = zi (ve - 1);")], [("check_fast", "(decoder_okb t.f_v_format")]),
    ("the largest |V|", [("n_V = v_max;", "n_V = Z_.one;")], [("check_fast", "(Z_.equal (Z_.of_int vm) h.n_V)")]),
    ("V within its bound", [("n_V = v_max;", "n_V = Z_.one;"), ("(decoder ve) (Z_.to_int v_max)", "(decoder ve) 1")],
     [("key_fast", "(all_within vm v)")]),
    ("the error of a score, relative", [("c_e1 = Exact.units_up e1", "c_e1 = Z_.zero")],
     [("constants_okb", "(qle_bool (qplus (qplus (qmult cc g) off)")]),
    ("the error of a score, absolute", [("c_e0 = Exact.units_up e0", "c_e0 = Z_.zero")],
     [("constants_okb", "(qle_bool (qplus (qmult (qmult cc (qmult (qmult (q_nodes")]),
    ("the error of a norm, relative", [("c_gn = Exact.units_up gn", "c_gn = Z_.zero")],
     [("constants_okb", "(qle_bool gn (qF")]),
    ("the error of a norm, absolute", [("c_nn = up128 nn", "c_nn = Z_.zero")],
     [("constants_okb", "(qle_bool (qmult (qmult (q_nodes h.n_constants.c_d) eta)")]),
    ("the largest error of a row", [("c_err = row_err constants query2 }", "c_err = Z_.zero }")],
     [("row_ok", "(Z_.leq er c.c_err)")]),
    ("the margin", [("(found.margin -. slack)", "(found.margin +. 1.)")],
     [("row_ok", "(Z_.leq (Z_.mul n0 (Z_.add (row_mu_hi")]),
    ("the factor", [("let flo, fhi = factor scale in", "let flo, fhi = factor scale in let fhi = Z_.pred flo in let flo = Z_.sub flo (zi 9) in")],
     [("check_fast", "(scale_encloses s h.n_constants.c_flo")]),
    ("the most visible keys", [("n_N = zi !most;", "n_N = zi (!most / 2);")],
     [("rows_fast", "(Z_.leq (Z_.of_int n0) h.n_N)"), ("depth_ok", "(Z_.leq (additions"), ("depth_ok", "(Z_.leq (o_depth k count)")]),
    ("|V| <= 2^G", [("let g = exponent 0 in", "let g = 0 in")], [("head_okb", "(at_most h.n_V h.n_ve h.n_G)")]),
    ("the stated bound", [("with n_bound = of_q bound }", "with n_bound = of_q (Q.div bound (Q.of_int 2)) }")],
     [("head_okb", "(qle_bool (q_output k h) h.n_bound)")]),
    ("the quotients' range", [("let rec quotient e =", "let rec quotient e = if true then Some { h with n_q = zi (-60) } else")],
     [("head_okb", "(qle_bool (qplus (qmult (inject_Z h.n_V) (q2 h.n_ve)) (q_sums k h))"),
      ("head_okb", "(qle_bool (qplus (qmult (inject_Z h.n_V) (q2 h.n_ve)) (q_quotient k h))")]),
    ("the channels", [("c_d = zi d;", "c_d = zi (d - 1);")], [("check_fast", "(Z_.equal h.n_constants.c_d")]),
]


def more(original):
    """Tampered certificates that are only of use here, by name."""
    def edit(function):
        certificate = copy.deepcopy(original)
        function(certificate)
        return json.dumps(certificate)

    def kernel(old, new):
        return json.dumps(checker.with_kernel(copy.deepcopy(original), old, new))

    def small_eps(certificate):
        certificate["parameters"]["eps"] = "0x1p-400"
        for claim in certificate["claims"]:
            if claim["id"] in ("mass.lost", "product.flush"):
                claim.update(limit="0x1p-400", value=["0x0p+0", "0x0p+0"])

    def claim(name, **change):
        def apply(certificate):
            for c in certificate["claims"]:
                if c["id"] == name:
                    c.update(**change)
        return apply

    half = (float.fromhex(original["gate"]["C"]) - 0.5).hex()
    return {
        "id": edit(lambda c: c["head"].update(id="another:layer9.3")),
        "C - 1/2": edit(lambda c: c["gate"].update(C=half)),
        "eps = 2^-400 everywhere": edit(small_eps),
        "lse.range: outcome": edit(claim("lse.error", outcome="unknown")),
        "kernel: an unknown section": kernel("[exp2]", '[merge]\nrule = "other"\n\n[exp2]'),
        "kernel: 'fused = true\\nfused = true'": kernel("fused = true", "fused = true\nfused = true"),
        "kernel: denormals_are_zero": kernel('order = "lanes:4"', 'order = "lanes:4"\ndenormals_are_zero = true'),
        "kernel: a matrix unit that flushes": kernel("flush_to_zero = false", "flush_to_zero = true"),
    }


def drop(text, function, start):
    """The extracted function with its conjunct that starts so replaced by true."""
    match = re.search(rf"^let (?:rec )?{function} .*?(?=^\(\*\* val|\Z)", text, re.M | re.S)
    if match is None:
        raise SystemExit(f"mutants: found no function {function}")
    body = re.sub(r"\s+", " ", match.group())
    at = body.find(start)
    if at < 0 or body.find(start, at + 1) >= 0:
        raise SystemExit(f"mutants: {function}: expected {start} once")
    depth, end = 0, at
    while True:
        depth += {"(": 1, ")": -1}.get(body[end], 0)
        end += 1
        if depth == 0:
            break
    return text[:match.start()] + body[:at] + "true" + body[end:] + "\n\n" + text[match.end():]


def build(ocamlfind, folder, sources, base=None):
    """The program of these sources; what comes before the first that differs from `base`'s is taken from there."""
    if base is None:
        folder.mkdir()
    else:
        shutil.copytree(base, folder)
    objects, same = [], base is not None
    for name in SOURCES:
        same = same and (folder / name).read_text(encoding="utf-8") == sources[name]
        (folder / name).write_text(sources[name], encoding="utf-8")
        if not same:
            compiler(ocamlfind, folder, "-c", name)
        if name.endswith(".ml"):
            objects.append(name.replace(".ml", ".cmo"))
    compiler(ocamlfind, folder, "-linkpkg", *objects, "-o", "headroom-check")
    return folder / "headroom-check"


def compiler(ocamlfind, folder, *arguments):
    result = subprocess.run([ocamlfind, "ocamlc", "-w", "-a", "-package", "zarith,unix", *arguments],
                            cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise SystemExit(f"mutants: {folder.name}: {result.stderr.strip()}")


def replaced(sources, file, old, new):
    if sources[file].count(old) != 1:
        raise SystemExit(f"mutants: {file}: expected once: {old}")
    return {**sources, file: sources[file].replace(old, new)}


def main(headroom, ocamlfind, driver, extracted, heads):
    sources = {name: pathlib.Path(extracted if name.startswith("checker.") else driver, name)
               .read_text(encoding="utf-8") for name in SOURCES}
    failures = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        checker.run(headroom, "certify", heads, "--kernel", "hopper", "--heads", "*:0", "--certificates", scratch / "certificates")
        honest = sorted((scratch / "certificates").glob("*.json"))[0]
        original = json.loads(honest.read_text(encoding="utf-8"))
        tampered = {}
        for what, _, text in checker.changes(original):
            tampered[re.sub(r" \(\d+\)", "", what)] = text
        tampered.update(more(original))
        whole = build(ocamlfind, scratch / "whole", sources)
        number = [0]

        def answer(program, text):
            number[0] += 1
            path = scratch / f"certificate{number[0]}.json"
            path.write_text(text, encoding="utf-8")
            return checker.run(program, path, heads).returncode

        def tampering(job):
            name, mutant, texts = job
            program = build(ocamlfind, scratch / re.sub(r"\W", "_", name), mutant, whole.parent)
            for text in texts:
                if answer(whole, text) == 0:
                    return f"{name}: the whole checker accepts it"
                if answer(program, text) == 0:
                    return None
            return f"without {name}: found exit {answer(program, texts[0])}, expected that it gets through"

        def lying(job):
            name, lies, drops = job
            # the check in integers of any size would put a lie right
            liar = replaced(sources, "main.ml", "if not fast && not (check_words kernel h scale (words_of t)) then",
                            "if not fast then")
            for old, new in lies:
                liar = replaced(liar, "main.ml", old, new)
            text = honest.read_text(encoding="utf-8")
            caught = answer(build(ocamlfind, scratch / re.sub(r"\W", "_", "lie " + name), liar, whole.parent), text)
            if caught == 0:
                return f"a driver that lies about {name} is believed"
            for function, start in drops:
                liar = {**liar, "checker.ml": drop(liar["checker.ml"], function, start)}
            code = answer(build(ocamlfind, scratch / re.sub(r"\W", "_", "blind to " + name), liar, whole.parent), text)
            return None if code == 0 else f"blind to {name}: found exit {code}, expected that the lie gets through"

        jobs = []
        for name, file, old, new, certificate in DRIVER:
            if certificate not in tampered:
                raise SystemExit(f"mutants: no tampered certificate {certificate!r}")
            jobs.append((tampering, (name, replaced(sources, file, old, new), [tampered[certificate]])))
        for name, drops, certificate in EXTRACTED:
            text = sources["checker.ml"]
            for function, start in drops:
                text = drop(text, function, start)
            jobs.append((tampering, (name, {**sources, "checker.ml": text}, [tampered[certificate]])))
        jobs += [(lying, job) for job in LIES]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for failure in pool.map(lambda job: job[0](job[1]), jobs):
                if failure:
                    failures.append(failure)
                    print(failure, flush=True)
    print(f"{len(jobs)} mutants, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
