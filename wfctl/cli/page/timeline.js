(function () {
  "use strict";
  var box = document.querySelector(".chart"), svg = box.querySelector("svg"), tip = document.getElementById("tip");
  var band = document.getElementById("select"), d = svg.dataset;
  var since = +d.since, until = +d.until, left = +d.left, right = +d.right, now = +d.now, head = +d.head, height = +d.height;
  var from = since, to = until, width = 0, zone = d.zone, current = null;
  var axis = svg.querySelector(".axis"), marks = Array.prototype.slice.call(svg.querySelectorAll(".m"));
  var moved = Array.prototype.slice.call(svg.querySelectorAll(".m, .band"));
  var steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
    1209600, 2419200, 7862400, 31449600];

  function x(t) { return left + (t - from) / (to - from) * (width - left - right); }
  function time(px) { return from + (px - left) / (width - left - right) * (to - from); }
  function set(node, name, value) { node.setAttribute(name, Math.round(value * 100) / 100); }

  // Drawing -------------------------------------------------------------------------------------------------------------

  function place(group) {
    var b = +group.dataset.b, e = +group.dataset.e, at = x(b), w = Math.max(0, x(e) - at), y = group.y0;
    group.setAttribute("transform", "translate(" + at.toFixed(2) + " " + y + ")");
    Array.prototype.forEach.call(group.children, function (node) {
      var c = node.classList, data = node.dataset;
      if (data.w) {
        var wide = Math.max(+data.w, w);
        set(node, "width", wide);
        if (c.contains("bar") && group.classList.contains("k-expected")) { c.toggle("thin", wide < 6); }
      } else if (data.b) {
        set(node, "x", x(+data.b) - at);
        set(node, "width", Math.max(1, x(+data.e) - x(+data.b)));
      } else if (data.from) {
        node.setAttribute("d", "M" + (x(+data.from) - at).toFixed(2) + " " + (c.contains("held") ? "0H-6" : "6.5H0"));
      } else if (c.contains("end")) {
        var full = Math.max(3, w);
        node.setAttribute("transform", "translate(" + (full > 18 ? full - 8 : full / 2).toFixed(2) + " 6.5)");
      } else if (c.contains("mid")) {
        node.setAttribute("transform", "translate(" + (Math.max(4, w) / 2).toFixed(2) + " 0)");
      } else if (c.contains("tape")) {
        set(node, "x", Math.max(5, left + 5 - at));
        node.setAttribute("display", Math.min(w, at + w - left) > +data.need ? "inline" : "none");
      } else if (node.tagName === "rect" && group.classList.contains("band") && !c.contains("pill")) {
        set(node, "width", Math.max(1, w));
      }
    });
    var gone = e < from || b > to;
    group.style.visibility = gone ? "hidden" : "";
  }

  function format(options) {
    options.timeZone = zone;
    options.hourCycle = "h23";
    try { return new Intl.DateTimeFormat("en-GB", options); }
    catch (unknown) { options.timeZone = "UTC"; return new Intl.DateTimeFormat("en-GB", options); }
  }
  var clock = format({ hour: "2-digit", minute: "2-digit" });
  var exact = format({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
  var day = format({ weekday: "short", day: "2-digit", month: "short" });
  var parts = format({ year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric" });

  function local(t) {
    var found = {};
    parts.formatToParts(new Date(t * 1000)).forEach(function (part) { found[part.type] = +part.value; });
    return Date.UTC(found.year, found.month - 1, found.day, found.hour, found.minute, found.second) / 1000;
  }

  function line(kind, at, text, y) {
    var node = document.createElementNS(svg.namespaceURI, text === null ? "path" : "text");
    node.setAttribute("class", kind);
    if (text === null) { node.setAttribute("d", "M" + at.toFixed(2) + " " + (head - 6) + "V" + height); }
    else { set(node, "x", at + 3); set(node, "y", y); node.textContent = text; }
    axis.appendChild(node);
  }

  function drawAxis() {
    var most = Math.max(2, Math.round((width - left - right) / 72)), length = to - from, last = "";
    var step = steps.filter(function (each) { return length / each <= most; })[0] || length;
    axis.textContent = "";
    var offset = local(from) - Math.floor(from), origin = step >= 604800 ? 345600 : 0;  // weeks begin on a Monday
    var wall = Math.ceil((from + offset - origin) / step) * step + origin;
    for (; wall - offset <= to; wall += step) {
      var t = wall - offset, drift = local(t) - wall;
      if (Math.abs(drift) < step) { t -= drift; }  // the clocks of the zone changed in between
      if (t < from || t > to) { continue; }
      var at = x(t), date = new Date(t * 1000), name = day.format(date).replace(",", "");
      line("grid", at, null);
      if (at < width - right - 20 && Math.abs(x(now) - at - 18) > 20) {
        line("dim", at, step >= 86400 ? name.slice(0, 6) : step >= 60 ? clock.format(date) : exact.format(date), head - 9);
      }
      if (name !== last && at < width - right - 60 && step < 86400) { line("day", at, name, head - 26); }
      last = name;
    }
  }

  function thin(lane) {  // of marks that would cover each other only some are shapes, the others are ticks
    var drawn = {};
    lane.forEach(function (mark) {
      if (!mark.querySelector(".sym")) { return; }
      var kind = mark.getAttribute("class").replace(" near", ""), at = x(+mark.dataset.b);
      var near = kind in drawn && at - drawn[kind] < 15;
      if (near !== mark.classList.contains("near") && mark !== document.activeElement) {
        mark.classList.toggle("near", near);
        if (near) {  // below the shapes, over the bars
          var shape = mark.parentNode.querySelector(".m:not(.near) > .sym");
          if (shape) { mark.parentNode.insertBefore(mark, shape.parentNode); }
        } else { mark.parentNode.appendChild(mark); }
      }
      if (!near) { drawn[kind] = at; }
    });
  }

  function draw() {
    width = Math.max(680, box.clientWidth);
    svg.setAttribute("viewBox", "0 0 " + width + " " + height);
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    svg.querySelectorAll("[data-full]").forEach(function (node) { set(node, "width", width); });
    svg.querySelector("[data-line]").setAttribute("d", "M0 " + (head - 0.5) + "H" + width);
    set(svg.querySelector("#plot rect"), "width", width - left - right);
    moved.forEach(place);
    lanes.forEach(thin);
    drawAxis();
    var whole = from <= since && to >= until;
    document.getElementById("whole").disabled = document.getElementById("out").disabled = whole;
    document.getElementById("earlier").disabled = from <= since;
    document.getElementById("later").disabled = to >= until;
    svg.dataset.from = from;
    svg.dataset.to = to;
  }

  function look(a, b) {
    var length = Math.min(until - since, Math.max(10, b - a));
    from = Math.max(since, Math.min(a, until - length));
    to = from + length;
    hide();
    draw();
    if (current && document.activeElement === current) { show(current); }
  }
  function zoom(factor, middle) { look(middle - (middle - from) * factor, middle + (to - middle) * factor); }
  function shift(share) { var by = (to - from) * share; look(from + by, to + by); }

  // What is said of a mark ----------------------------------------------------------------------------------------------

  function show(mark, px, py) {
    var said = mark.getAttribute("aria-label"), cut = said.indexOf(": "), title = document.createElement("b");
    title.textContent = cut < 0 ? said : said.slice(0, cut);
    tip.textContent = "";
    tip.appendChild(title);
    if (cut >= 0) { tip.appendChild(document.createTextNode(said.slice(cut + 2))); }
    tip.hidden = false;
    var own = tip.getBoundingClientRect(), of = mark.getBoundingClientRect();
    if (px === undefined) { px = Math.min(of.right, Math.max(of.left, box.getBoundingClientRect().left + left)); py = of.bottom; }
    tip.style.left = Math.max(6, Math.min(px + 12, window.innerWidth - own.width - 6)) + "px";
    tip.style.top = (py + 16 + own.height > window.innerHeight ? Math.max(6, py - own.height - 12) : py + 16) + "px";
  }
  function hide() { tip.hidden = true; }
  function of(event) { return event.target.closest ? event.target.closest(".m, .band[aria-label]") : null; }

  // Walking from mark to mark -------------------------------------------------------------------------------------------

  var lanes = Array.prototype.map.call(svg.querySelectorAll(".lane"), function (lane) {
    return Array.prototype.slice.call(lane.querySelectorAll(".m")).sort(function (a, b) { return a.dataset.b - b.dataset.b; });
  });
  lanes.unshift(marks.filter(function (mark) { return !mark.closest(".lane"); }));
  lanes = lanes.filter(function (lane) { return lane.length; });

  function go(mark) {
    if (!mark) { return; }
    var b = +mark.dataset.b, e = +mark.dataset.e;
    if (e < from || b > to) { look(b - (to - from) / 2, b + (to - from) / 2); }
    mark.focus();
  }
  function beside(mark, by) {
    var own = lanes.findIndex(function (lane) { return lane.indexOf(mark) >= 0; }), other = lanes[own + by];
    return other && other.reduce(function (best, each) {
      return Math.abs(each.dataset.b - mark.dataset.b) < Math.abs(best.dataset.b - mark.dataset.b) ? each : best;
    });
  }
  function step(mark, by) {
    var lane = lanes.find(function (each) { return each.indexOf(mark) >= 0; });
    return lane && lane[lane.indexOf(mark) + by];
  }
  function edge(mark, last) {
    var lane = lanes.find(function (each) { return each.indexOf(mark) >= 0; });
    return lane && lane[last ? lane.length - 1 : 0];
  }

  function middle() {  // what is looked at: the mark with the focus, else the middle
    var mark = document.activeElement;
    if (!mark || !mark.classList.contains("m")) { return (from + to) / 2; }
    return Math.min(to, Math.max(from, (Math.max(from, +mark.dataset.b) + Math.min(to, +mark.dataset.e)) / 2));
  }
  var keys = {
    "+": function () { zoom(0.5, middle()); }, "=": function () { zoom(0.5, middle()); },
    "-": function () { zoom(2, middle()); }, "0": function () { look(since, until); },
    "[": function () { shift(-0.5); }, "]": function () { shift(0.5); }, Escape: hide
  };
  var walks = {
    ArrowRight: function (m) { return step(m, 1); }, ArrowLeft: function (m) { return step(m, -1); },
    ArrowDown: function (m) { return beside(m, 1); }, ArrowUp: function (m) { return beside(m, -1); },
    Home: function (m) { return edge(m, false); }, End: function (m) { return edge(m, true); }
  };
  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey) { return; }
    var mark = document.activeElement && document.activeElement.classList.contains("m") ? document.activeElement : null;
    if (mark && walks[event.key]) { event.preventDefault(); go(walks[event.key](mark)); }
    else if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  svg.addEventListener("focusin", function (event) {
    var mark = of(event);
    if (!mark) { return; }
    if (current) { current.setAttribute("tabindex", "-1"); }
    current = mark;
    mark.setAttribute("tabindex", "0");  // Tab enters the picture once, where it was left
    show(mark);
  });
  svg.addEventListener("focusout", hide);

  // Pointer -------------------------------------------------------------------------------------------------------------

  var began = null;
  function inside(event) { return event.clientX - svg.getBoundingClientRect().left; }
  svg.addEventListener("pointermove", function (event) {
    var mark = of(event);
    if (began !== null) {
      band.hidden = false;
      band.style.left = Math.min(began, inside(event)) + "px";
      band.style.width = Math.abs(inside(event) - began) + "px";
      hide();
    } else if (mark) { show(mark, event.clientX, event.clientY); }
    else { hide(); }
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointerdown", function (event) {
    if (event.button === 0 && event.pointerType !== "touch" && inside(event) > left) { began = inside(event); }
  });
  window.addEventListener("pointerup", function (event) {
    if (began !== null && Math.abs(inside(event) - began) > 6) {
      var a = time(Math.max(left, Math.min(began, inside(event)))), b = time(Math.max(began, inside(event)));
      look(a, b);
    }
    began = null;
    band.hidden = true;
  });
  svg.addEventListener("dblclick", function () { look(since, until); });
  svg.addEventListener("wheel", function (event) {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, time(Math.max(left, inside(event))));
    } else if (event.shiftKey) {
      event.preventDefault();
      shift((event.deltaY || event.deltaX) > 0 ? 0.1 : -0.1);
    }
  }, { passive: false });
  [["in", "+"], ["out", "-"], ["whole", "0"], ["earlier", "["], ["later", "]"]].forEach(function (pair) {
    document.getElementById(pair[0]).addEventListener("click", keys[pair[1]]);
  });

  moved.forEach(function (group) {
    var title = group.querySelector("title");
    group.y0 = /translate\(\S+ (\S+)\)/.exec(group.getAttribute("transform"))[1];
    if (title) { title.remove(); }
  });
  marks.forEach(function (mark) { mark.setAttribute("tabindex", "-1"); });
  if (lanes.length) { current = lanes[0][0]; current.setAttribute("tabindex", "0"); }
  document.querySelectorAll(".script").forEach(function (node) { node.hidden = false; });
  window.addEventListener("resize", draw);
  draw();
})();
