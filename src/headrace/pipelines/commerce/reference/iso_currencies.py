"""The currencies of ISO 4217, those of today and those that it has dropped, and the units that amounts are counted in."""

from __future__ import annotations

from decimal import Decimal

import pycountry
from pyspark.sql import DataFrame, SparkSession

from headrace import table

NONE = (
    *("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF", "XPF"),
    *("ADP", "BEF", "BYB", "BYR", "ESP", "GRD", "ITL", "LUF", "MGF", "PTE", "TPE", "TRL"),
)
THREE = ("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND")
DECIMALS = {**dict.fromkeys(NONE, 0), **dict.fromkeys(THREE, 3), "CLF": 4, "UYW": 4}
"""How many decimals ISO 4217 gives a currency, where it is not two."""
STRIPE_DECIMALS = {"ISK": 2, "UGX": 2, "MGA": 0}
"""Where Stripe counts in another unit than ISO 4217: two kept their hundredths, and the ariary has none."""

DROPPED = """\
ADP 020 2003 Andorran Peseta
AFA 004 2003 Afghani
ALK 008 1989 Old Lek
ANG 532 2025 Netherlands Antillean Guilder
AOK 024 1991 Kwanza
AON 024 2000 New Kwanza
AOR 982 2000 Kwanza Reajustado
ARA 032 1992 Austral
ARP 032 1985 Peso Argentino
ARY 032 1990 Peso
ATS 040 2002 Schilling
AYM 945 2005 Azerbaijan Manat
AZM 031 2005 Azerbaijanian Manat
BAD 070 1998 Dinar
BEC 993 1990 Convertible Franc
BEF 056 2002 Belgian Franc
BEL 992 1990 Financial Franc
BGJ 100 1990 Lev A/52
BGK 100 1990 Lev A/62
BGL 100 2003 Lev
BGN 975 2026 Bulgarian Lev
BOP 068 1987 Peso boliviano
BRB 076 1986 Cruzeiro
BRC 076 1989 Cruzado
BRE 076 1993 Cruzeiro
BRN 076 1990 New Cruzado
BRR 987 1994 Cruzeiro Real
BUK 104 1990 Kyat
BYB 112 2001 Belarusian Ruble
BYR 974 2017 Belarusian Ruble
CHC 948 2004 WIR Franc (for electronic)
CSD 891 2006 Serbian Dinar
CSJ 203 1990 Krona A/53
CSK 200 1993 Koruna
CUC 931 2021 Peso Convertible
CYP 196 2008 Cyprus Pound
DDM 278 1990 Mark der DDR
DEM 276 2002 Deutsche Mark
ECS 218 2000 Sucre
ECV 983 2000 Unidad de Valor Constante (UVC)
EEK 233 2011 Kroon
ESA 996 1981 Spanish Peseta
ESB 995 1994 A Account (convertible Peseta Account)
ESP 724 2002 Spanish Peseta
FIM 246 2002 Markka
FRF 250 2002 French Franc
GEK 268 1995 Georgian Coupon
GHC 288 2008 Cedi
GHP 939 2007 Ghana Cedi
GNE 324 1989 Syli
GNS 324 1986 Syli
GQE 226 1986 Ekwele
GRD 300 2002 Drachma
GWE 624 1981 Guinea Escudo
GWP 624 1997 Guinea-Bissau Peso
HRD 191 1995 Croatian Dinar
HRK 191 2023 Kuna
IEP 372 2002 Irish Pound
ILP 376 1981 Pound
ILR 376 1990 Old Shekel
ISJ 352 1990 Old Krona
ITL 380 2002 Italian Lira
LAJ 418 1979 Pathet Lao Kip
LSM 426 1985 Loti
LTL 440 2014 Lithuanian Litas
LTT 440 1993 Talonas
LUC 989 1990 Luxembourg Convertible Franc
LUF 442 2002 Luxembourg Franc
LUL 988 1990 Luxembourg Financial Franc
LVL 428 2014 Latvian Lats
LVR 428 1994 Latvian Ruble
MGF 450 2004 Malagasy Franc
MLF 466 1984 Mali Franc
MRO 478 2017 Ouguiya
MTL 470 2008 Maltese Lira
MTP 470 1983 Maltese Pound
MVQ 462 1989 Maldive Rupee
MXP 484 1993 Mexican Peso
MZE 508 1981 Mozambique Escudo
MZM 508 2006 Mozambique Metical
NIC 558 1990 Cordoba
NLG 528 2002 Netherlands Guilder
PEH 604 1990 Sol
PEI 604 1991 Inti
PES 604 1986 Sol
PLZ 616 1997 Zloty
PTE 620 2002 Portuguese Escudo
RHD 716 1981 Rhodesian Dollar
ROK 642 1990 Leu A/52
ROL 642 2005 Old Leu
RUR 810 2004 Russian Ruble
SDD 736 2007 Sudanese Dinar
SDP 736 1998 Sudanese Pound
SIT 705 2007 Tolar
SKK 703 2009 Slovak Koruna
SLL 694 2023 Leone
SRG 740 2003 Surinam Guilder
STD 678 2017 Dobra
SUR 810 1990 Rouble
TJR 762 2001 Tajik Ruble
TMM 795 2009 Turkmenistan Manat
TPE 626 2002 Timor Escudo
TRL 792 2005 Old Turkish Lira
UAK 804 1996 Karbovanet
UGS 800 1987 Uganda Shilling
UGW 800 1990 Old Shilling
USS 998 2014 US Dollar (Same day)
UYN 858 1989 Old Uruguay Peso
UYP 858 1993 Uruguayan Peso
VEB 862 2008 Bolivar
VEF 937 2018 Bolívar
VNC 704 1990 Old Dong
XEU 954 1999 European Currency Unit (E.C.U)
XFO --- 2006 Gold-Franc
XFU --- 2013 UIC-Franc
XRE --- 1999 RINET Funds Code
YDD 720 1991 Yemeni Dinar
YUD 890 1990 New Yugoslavian Dinar
YUM 891 2003 New Dinar
YUN 890 1995 Yugoslavian Dinar
ZAL 991 1995 Financial Rand
ZMK 894 2012 Zambian Kwacha
ZRN 180 1999 New Zaire
ZRZ 180 1994 Zaire
ZWC 716 1989 Rhodesian Dollar
ZWD 716 2008 Zimbabwe Dollar
ZWL 932 2024 Zimbabwe Dollar
ZWN 942 2006 Zimbabwe Dollar (new)
ZWR 935 2009 Zimbabwe Dollar
"""
"""Codes that ISO 4217 has withdrawn (its list three): code, number, last year, name. pycountry has only the codes of today, but
providers go on sending a code for years, and old orders keep theirs."""


@table(kind="full")
def iso_currencies(spark: SparkSession) -> DataFrame:
    """Return every currency that ISO 4217 names or has named.

    `stripe_unit` is what 1 is worth in an amount of Stripe's, `smallest_unit` the finest step of any amount in the currency,
    and `withdrawn` the year in which ISO 4217 dropped it.
    """
    currencies: dict[str, tuple[str | None, str, int | None]] = {}
    for line in DROPPED.splitlines():
        code, number, year, title = line.split(" ", 3)
        currencies[code] = (number if number.isdigit() else None, title, int(year))
    currencies |= {each.alpha_3: (each.numeric, each.name, None) for each in pycountry.currencies}
    rows = []
    for code, (numeric, name, withdrawn) in sorted(currencies.items()):
        decimals = DECIMALS.get(code, 2)
        stripe_unit = Decimal(1).scaleb(-STRIPE_DECIMALS.get(code, decimals))
        smallest_unit = min(Decimal(1).scaleb(-decimals), stripe_unit)
        rows.append((code, numeric, name, decimals, stripe_unit, smallest_unit, withdrawn))
    columns = (
        "code STRING, numeric STRING, name STRING, decimals INT, stripe_unit DECIMAL(5, 4), smallest_unit DECIMAL(5, 4), "
        "withdrawn INT"
    )
    return spark.createDataFrame(rows, columns)
